"""What a worker that takes no further part had not trained of its share goes to the others, piece by piece.

A share is a worker's part of each epoch. Its places are counted from 0 on, epoch after epoch: place p of a share of n
samples is in epoch p // n.

    input                                 then
    a worker has its share (`own`)        it trains that itself, in order
    it leaves or is lost (`gone`)         what it has not trained is free, and so are pieces that it had of others
    another one asks (`done`, `take`)     it gets the first free piece of the epochs that it has trained itself
    a worker that is back asks (`free`)   the same, but of its own share first
    one asks at its end, nothing is free  it may have to wait (`may_leave_more`)

A share that is free stays free, so a worker that is back shares it with the others. That of a worker that has never
been there is free, too. Coordinators of live and simulated runs have the same objects.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter, deque
from collections.abc import Collection, Sequence

from paceline.core.samples.batch_cut import batch_of
from paceline.core.samples.sample_leases import SampleRanges
from paceline.core.samples.shares_kept import KeptShare, SharePiece, pieces_left, trained_before


def bounds_of_take(epochs: int, epochs_max: int) -> tuple[int, ...]:
    """Returns the bounds by which a worker asks for a piece (`LeftShares.take`), one after the other.

    epochs: that it has trained itself; 0: it has no share of its own. epochs_max: whole ones of the run; 0: no rule.
    """
    if epochs_max and not epochs:
        return epochs_max, 0
    return (min(epochs, epochs_max or epochs),)


class LeftShares:
    """Gives out what is free of the shares of one data set."""

    def __init__(self, sizes: Sequence[int], kept: Sequence[KeptShare] = ()) -> None:
        """`sizes`: of the shares, in samples, by rank. `kept`: what a checkpoint had of them, where the run goes on."""
        self.sizes = tuple(sizes)
        self._begun = {rank: share.place for rank, share in enumerate(kept)}
        self._by_gone = trained_before(kept)  # places that workers have trained that are not here any more
        self._trained: dict[int, int] = {}  # of shares that their worker trains
        self._next: dict[int, int] = {}  # the first place that nobody was given, of shares that are free
        self._returned = pieces_left(self.sizes, kept)  # in order
        self._moved = bool(self._returned)
        self._given: dict[int, _Given] = {}  # to workers that take part
        self._epochs = 0  # of all that asked, the most
        self._finished: set[int] = set()
        self._steps: dict[int, int] = {}  # that workers make of their share
        self._done: dict[int, int] = {}  # epochs of its share that a worker has trained, where it has asked for more
        self._pieces: Counter[int] = Counter()  # that a worker was given

    def own(self, rank: int, trained: int, steps: int = 0) -> None:
        """Worker `rank` has trained so many samples of its share, and goes on with the next one.

        steps: that it makes of its share, as far as that is known; 0: any number.
        """
        if rank not in self._begun:
            self._begun[rank] = trained
            self._was_trained(rank, 0, trained)
        if rank not in self._next:
            self._trained[rank], self._steps[rank] = trained, steps

    def finish(self, rank: int) -> None:
        """Worker `rank` has trained its share as often as it was to; the rest is nobody's."""
        self._trained.pop(rank, None)
        self._finished.add(rank)

    def free(self, rank: int) -> None:
        """The share of worker `rank` is free from the first place on that it has not trained."""
        if rank not in self._next:
            begun = self._begun.get(rank, 0)
            self._next[rank] = self._trained.pop(rank, begun)
            self._was_trained(rank, begun, self._next[rank])

    def gone(self, rank: int, trained: int = 0) -> None:
        """Worker `rank` trains no more. `trained`: samples of its share, if it has reported fewer before."""
        if rank in self._trained:
            self._trained[rank] = max(trained, self._trained[rank])
            self.free(rank)
        given = self._given.pop(rank, _Given())
        for piece in given.pieces:
            bisect.insort(self._returned, piece)
        for share, start, stop in given.trained:
            self._was_trained(share, start, stop)

    def trained(self, rank: int, samples: int) -> None:
        """Worker `rank` has trained the first so many samples of the free pieces that it was given."""
        if rank in self._given:
            self._given[rank].drop(samples)

    def done(self, rank: int, epochs: int) -> None:
        """Worker `rank` has trained its share of so many epochs, or has none of its own; it asks for more of them."""
        self._epochs = max(self._epochs, epochs)
        self._done[rank] = epochs

    def take(self, rank: int, wanted: int, epochs: int, here: Collection[int]) -> SharePiece | None:
        """Returns a piece of at most `wanted` samples for worker `rank`; None where nothing is free.

        epochs: those of which it takes a part; 0: all, but of its own share only. here: the workers that take part.
        """
        for other in range(len(self.sizes)):
            if not (other in here or other in self._trained or other in self._finished):
                self.free(other)
        piece = self._of_returned(wanted, epochs) or self._of_share(rank, wanted, epochs or math.inf)
        if piece is None and epochs:
            free = sorted(self._next, key=lambda other: (self._epoch(other), other))
            piece = next((found for other in free if (found := self._of_share(other, wanted, epochs))), None)
        if piece is not None:
            self._given.setdefault(rank, _Given()).add(piece)
            self._pieces[rank] += 1
        return piece

    def may_leave_more(self, rank: int, steps: int, here: Collection[int]) -> bool:
        """Returns True if worker `rank`, which has made `steps` steps and was given nothing, is to wait.

        Another one may yet leave samples of the epochs that `rank` has trained. But that one may also need `rank` for
        an exchange, if it makes more steps than `rank` has made; then `rank` must not wait for it.
        """
        epochs = self._done.get(rank, 0)
        others = [other for other in here if other != rank and self._done.get(other, 0) < epochs]
        known = all(other in self._trained and self._steps[other] for other in others)
        return known and all(self._steps[r] + self._pieces[r] <= steps for r in others) and bool(others)

    def untrained(self) -> dict[int, int]:
        """Returns the samples of each free share that nobody was given, of the epochs that others have asked for."""
        left = {rank: self._epochs * self.sizes[rank] - at for rank, at in self._next.items()}
        for piece in self._returned:
            left[piece.rank] = max(0, left.get(piece.rank, 0)) + piece.stop - piece.start
        return {rank: samples for rank, samples in sorted(left.items()) if samples > 0}

    @property
    def moved(self) -> bool:
        """Returns True if others train what workers have left of their shares, here or before the run went on."""
        return self._moved or bool(self._next)

    def by_gone(self) -> tuple[dict[int, int], SampleRanges]:
        """Returns the sizes of the shares that are free, by rank, and which places those have trained that are gone, as
        (rank, start, stop)."""
        return {rank: self.sizes[rank] for rank in sorted(self._next)}, self._by_gone

    def _was_trained(self, rank: int, start: int, stop: int) -> None:
        if start < stop:
            self._by_gone.add((rank, start, stop))

    def _epoch(self, rank: int) -> int:
        return self._next[rank] // max(1, self.sizes[rank])

    def _of_returned(self, wanted: int, epochs: int) -> SharePiece | None:
        """Returns the first piece that was returned, or a part of it."""
        if not self._returned or self._returned[0].epoch >= epochs:
            return None
        piece = self._returned.pop(0)
        cut = piece.start + batch_of(piece.stop - piece.start, wanted)
        if cut < piece.stop:
            self._returned.insert(0, piece._replace(start=cut))
        return piece._replace(stop=cut)

    def _of_share(self, rank: int, wanted: int, epochs: float) -> SharePiece | None:
        """Returns the next piece of a free share."""
        if not self.sizes[rank] or rank not in self._next or self._epoch(rank) >= epochs:
            return None
        epoch, start = self._epoch(rank), self._next[rank]
        self._next[rank] = start + batch_of((epoch + 1) * self.sizes[rank] - start, wanted)
        return SharePiece(epoch, rank, start, self._next[rank])


class _Given:
    """Holds the pieces that a worker was given and has not trained, in the order in which it trains them."""

    def __init__(self) -> None:
        self.pieces: deque[SharePiece] = deque()
        self.trained = SampleRanges()  # as (rank, start, stop)
        self._dropped = 0

    def add(self, piece: SharePiece) -> None:
        self.pieces.append(piece)

    def drop(self, samples: int) -> None:
        """Drops the first `samples` that were ever given; it remembers how many of them were dropped before."""
        more = samples - self._dropped
        self._dropped = max(self._dropped, samples)
        while self.pieces and more > 0:
            piece = self.pieces.popleft()
            cut = min(piece.stop, piece.start + more)
            if cut < piece.stop:
                self.pieces.appendleft(piece._replace(start=cut))
            self.trained.add((piece.rank, piece.start, cut))
            more -= cut - piece.start
