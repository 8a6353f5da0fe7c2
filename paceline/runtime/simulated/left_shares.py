"""Gives virtual workers what others have left of their shares, by the rules of live runs
(`core/samples/left_shares.py`).

A worker has trained what its finished steps were made of; what it was at when it crashed is for the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core.samples.left_shares import LeftShares, bounds_of_take
from paceline.core.samples.shares_kept import SharePiece
from paceline.core.trace import ARRIVALS, MemberChange
from paceline.engine.data.batches import Batches
from paceline.runtime.simulated.counters import Meters


class SharesOfRun:
    """Holds the shares of all workers. epochs_max: so many whole epochs the run has; 0: it has no end in samples."""

    def __init__(self, streams: Sequence[Batches], meters: Meters, epochs_max: int) -> None:
        self._streams, self._meters, self._epochs_max = streams, meters, epochs_max
        self._left = LeftShares([stream.share_size for stream in streams])
        self._here = set(range(len(streams)))
        self._counted = [0] * len(streams)  # samples of the meters that the streams know of
        for rank, stream in enumerate(streams):
            stream.others = _ForWorker(self, rank)
            self._left.own(rank, 0)

    def heard(self, record: MemberChange) -> None:
        """Notes that a worker takes part, or does not any more."""
        kind, _, number = record.party.partition(" ")
        if kind != "worker":
            return
        rank = int(number)
        if record.event in ARRIVALS and rank not in self._here:
            self._here.add(rank)
            self._streams[rank].back = True
            self._left.free(rank)
        elif record.event not in ARRIVALS and rank in self._here:
            self._leaves(rank)

    def _leaves(self, rank: int) -> None:
        stream = self._streams[rank]
        self._look(rank)
        self._here.discard(rank)
        self._left.own(rank, stream.trained_of[True])
        self._left.trained(rank, stream.trained_of[False])
        self._left.gone(rank)
        stream.begin()

    def take(self, rank: int, samples: int, epochs: int) -> SharePiece | None:
        """Returns a piece for worker `rank`; None where nothing is left of these epochs."""
        self._look(rank)
        self._left.trained(rank, self._streams[rank].trained_of[False])
        for bound in bounds_of_take(epochs, self._epochs_max):
            if piece := self._left.take(rank, samples, bound, self._here):
                return piece
        return None

    def _look(self, rank: int) -> None:
        """Counts what worker `rank` has finished."""
        samples = self._meters.of[rank].samples
        self._streams[rank].trained(samples - self._counted[rank])
        self._counted[rank] = samples


class _ForWorker:
    """Speaks for one worker (it is a `LeftPieces`)."""

    def __init__(self, shares: SharesOfRun, rank: int) -> None:
        self._shares, self._rank = shares, rank

    def take(self, samples: int, epochs: int, *, trained: int, ends: bool) -> SharePiece | None:
        """Returns the next piece; the meters say what is trained."""
        return self._shares.take(self._rank, samples, epochs)
