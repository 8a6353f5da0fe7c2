"""One queue of samples serves all workers: whoever is free takes the next ones, so each trains by its own speed.

The queue counts places: place p is the sample at p modulo n in the order of epoch p // n, of a data set of n samples.
Each place is given to one worker. Pieces get shorter towards the end, so that a slow worker does not hold the last ones
for long. None goes over the end of an epoch, so batches are those of a loop that trains alone. What a worker that left
or failed had not trained is given to others first.

Unlike `sample_leases.py` it counts a sample as trained when its worker says so, not when an update holds its gradient.
A resumed run goes by what is in the model of its checkpoint: places that had been given out and are not in it are given
out first.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from paceline.core.effects import Piece
from paceline.core.samples.batch_cut import batch_of
from paceline.core.samples.sample_leases import SampleRanges

SamplePlaces = tuple[int, int]
"""The first place, and the place after the last."""


class SampleQueue:
    """Serves a data set of `samples` samples; `total` bounds the places that are given out, None where nothing does.

    begun_at: samples that an earlier incarnation of the run has trained. done: which of them are known to be in the
    model, as pieces of epochs; the others count as the first places that are not.

    Raises ValueError for a data set without samples.
    """

    def __init__(self, samples: int, total: int | None = None, begun_at: int = 0, done: Iterable[Piece] = ()) -> None:
        if samples < 1:
            raise ValueError(f"a data set of {samples} samples: must have 1 or more")
        self.samples, self.total = samples, total
        self._returned, self._next = _untrained(samples, begun_at, done)
        self._untrained: dict[int, _UntrainedPieces] = {}  # by rank

    def take(self, rank: int, wanted: int, batch: int, *, epochs: int, workers: int) -> SamplePlaces | None:
        """Returns places of at most `wanted` samples for worker `rank`, one of `workers`; None where none are left.

        They are of the first `epochs` epochs (0: of any), and whole mini-batches of `batch`, except where an epoch or
        the run ends: there several workers leave no single place (`batch_of`).
        """
        ends = [end for end in (self.total, epochs * self.samples or None) if end is not None]
        end = min(ends) if ends else None
        places = self._given_back(wanted, end) or self._fresh(wanted, batch, end, workers)
        if places is not None:
            self._untrained.setdefault(rank, _UntrainedPieces()).give(places)
        return places

    def trained(self, rank: int, samples: int) -> None:
        """Worker `rank` has trained the first so many samples of those that it was given in this incarnation."""
        if rank in self._untrained:
            self._untrained[rank].drop(samples)

    def gone(self, rank: int) -> None:
        """Ends this incarnation of worker `rank`: what it has not trained is free."""
        left = self._untrained.pop(rank, None)
        if left is not None:
            self._returned = sorted([*self._returned, *left.pieces])

    @property
    def returned(self) -> int:
        """Returns the samples that were given out, and are free again."""
        return sum(stop - start for start, stop in self._returned)

    @property
    def over(self) -> bool:
        """Returns True if everything has been given out."""
        return self.total is not None and self._next >= self.total and not self._returned

    def _given_back(self, wanted: int, end: int | None) -> SamplePlaces | None:
        """Returns the first places that were given back, at most `wanted` of them and none from `end` on."""
        if not self._returned or (end is not None and self._returned[0][0] >= end):
            return None
        start, stop = self._returned.pop(0)
        until = stop if end is None else min(stop, end)
        cut = start + batch_of(until - start, wanted)
        if cut < stop:
            self._returned.insert(0, (cut, stop))
        return start, cut

    def _fresh(self, wanted: int, batch: int, end: int | None, workers: int) -> SamplePlaces | None:
        """Returns the next places that nobody had, and moves on."""
        start = self._next
        left = math.inf if end is None else end - start
        if left <= 0:
            return None
        # Half an even share of what is left: the other half is divided later, by who is fast.
        fair = wanted if end is None else (end - start) // (2 * max(1, workers)) // batch * batch
        epoch_end = (start // self.samples + 1) * self.samples
        here = min(epoch_end, epoch_end if end is None else end) - start
        length = max(batch, min(wanted, fair))
        self._next = start + (batch_of(here, length) if workers > 1 else min(here, length))
        return start, self._next


def _untrained(samples: int, begun_at: int, done: Iterable[Piece]) -> tuple[list[SamplePlaces], int]:
    """Returns the places that were given out and not trained, in order, and the first place that nobody had."""
    trained = SampleRanges(done)
    if any(stop > samples for _, _, stop in trained):  # they are of other data
        trained = SampleRanges()
    left, unknown = list[SamplePlaces](), max(0, begun_at - trained.count)
    last = max((epoch * samples + stop for epoch, _, stop in trained), default=0)
    for epoch in range(math.ceil(last / samples)):
        for _, start, stop in trained.without((epoch, 0, min(samples, last - epoch * samples))):
            first = min(stop, start + unknown)
            unknown -= first - start
            if first < stop:
                left.append((epoch * samples + first, epoch * samples + stop))
    return left, last + unknown


class _UntrainedPieces:
    """Holds what one incarnation of a worker was given and has not trained, in the order in which it trains it."""

    def __init__(self) -> None:
        self.pieces: deque[SamplePlaces] = deque()
        self._dropped = 0

    def give(self, places: SamplePlaces) -> None:
        self.pieces.append(places)

    def drop(self, samples: int) -> None:
        """Drops the first `samples` that it was ever given; how many of them were dropped before is remembered."""
        more = samples - self._dropped
        while self.pieces and more > 0:
            start, stop = self.pieces.popleft()
            part = min(more, stop - start)
            if start + part < stop:
                self.pieces.appendleft((start + part, stop))
            more -= part
            self._dropped += part
