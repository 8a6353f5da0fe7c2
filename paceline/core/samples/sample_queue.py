"""One queue of samples for all workers: whoever is free takes the next ones, so each trains by its own speed.

The queue counts places: place p is the sample at p modulo n in the order of epoch p // n, of a data set of n samples.
Each place is given to one worker. Pieces get shorter towards the end, so that a slow worker does not sit on the last
ones, and none goes over the end of an epoch, so that batches are those of a loop that is alone. What a worker that is
gone had not trained is given to others first.
"""

from __future__ import annotations

import math
from collections import deque

SamplePlaces = tuple[int, int]
"""From the first to before the second."""


class SampleQueue:
    """Of a data set of `samples` samples; `total` bounds the places that are given out, None where nothing does.

    Raises ValueError for a data set without samples.
    """

    def __init__(self, samples: int, total: int | None = None) -> None:
        if samples < 1:
            raise ValueError(f"a data set of {samples} samples: must have 1 or more")
        self.samples, self.total = samples, total
        self._next = 0
        self._returned: list[SamplePlaces] = []  # in order
        self._untrained: dict[int, _UntrainedPieces] = {}  # by rank

    def take(self, rank: int, wanted: int, batch: int, *, epochs: int, workers: int) -> SamplePlaces | None:
        """At most `wanted` samples for worker `rank`, one of `workers`, of the first `epochs` epochs (0: of any).

        Whole mini-batches of `batch`, but where an epoch or everything ends. None where nothing is left of these.
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
        """This incarnation of worker `rank` is over: what it has not trained is free."""
        left = self._untrained.pop(rank, None)
        if left is not None:
            self._returned = sorted([*self._returned, *left.pieces])

    @property
    def over(self) -> bool:
        """Has everything been given out?"""
        return self.total is not None and self._next >= self.total and not self._returned

    def _given_back(self, wanted: int, end: int | None) -> SamplePlaces | None:
        if not self._returned or (end is not None and self._returned[0][0] >= end):
            return None
        start, stop = self._returned.pop(0)
        cut = min(stop, start + wanted, stop if end is None else end)
        if cut < stop:
            self._returned.insert(0, (cut, stop))
        return start, cut

    def _fresh(self, wanted: int, batch: int, end: int | None, workers: int) -> SamplePlaces | None:
        start = self._next
        left = math.inf if end is None else end - start
        if left <= 0:
            return None
        fair = wanted if end is None else (end - start) // (2 * max(1, workers)) // batch * batch
        epoch_end = (start // self.samples + 1) * self.samples
        stop = min(start + max(batch, min(wanted, fair)), epoch_end, epoch_end if end is None else end)
        self._next = stop
        return start, stop


class _UntrainedPieces:
    """What one incarnation of a worker was given and has not trained, in the order in which it trains it."""

    def __init__(self) -> None:
        self.pieces: deque[SamplePlaces] = deque()
        self._dropped = 0

    def give(self, places: SamplePlaces) -> None:
        self.pieces.append(places)

    def drop(self, samples: int) -> None:
        """The first so many that it was ever given."""
        more = samples - self._dropped
        while self.pieces and more > 0:
            start, stop = self.pieces.popleft()
            part = min(more, stop - start)
            if start + part < stop:
                self.pieces.appendleft((start + part, stop))
            more -= part
            self._dropped += part
