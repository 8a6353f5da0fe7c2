"""Leases samples in virtual time: the queue of a live run, which is asked and told without a message.

A live worker asks for its next lease while it works at one, so it does not wait for the answer either. For clusters
with hazards, `sim/faults/parties/sample_leases.py` takes the place of this.
"""

from __future__ import annotations

from collections.abc import Callable

from paceline.core.effects import Data, Piece
from paceline.core.samples.sample_leases import LATE, Leases, joined
from paceline.core.trace import Leased
from paceline.engine.data.batches import Indices
from paceline.engine.data.dataset import Dataset
from paceline.engine.data.leased_batches import LeasedBatches

INCARNATION = 0
"""The incarnation of every worker: a lost one's leases are given back before its next incarnation asks."""


class SimulatedSampleLeases:
    """Holds the leases of all workers. `turn`: rank of the worker that asks next, and how many samples it needs."""

    def __init__(
        self,
        leases: Leases,
        batch_of: Callable[[int], int],
        now: Callable[[], float],
        recorded: Callable[[Leased], None],
    ) -> None:
        """`batch_of` returns the own batch of a worker, by rank, and `now` virtual seconds. `recorded` is called with
        the account of the samples at the end of each epoch."""
        self._leases, self._batch_of, self._now, self._recorded = leases, batch_of, now, recorded
        self._at_hand: dict[int, Piece] = {}  # by rank: what is left of its lease
        self.turn = (0, 1)

    @property
    def epochs(self) -> int:
        """Returns how many epochs are over."""
        return self._leases.epochs

    def reached(self, samples: int) -> bool:
        """Returns True if that many samples are settled, so that the run may end."""
        return self._leases.reached(samples)

    def next(self) -> Piece:
        """Returns the next piece for the worker whose `turn` it is: no more than it needs."""
        rank, samples = self.turn
        held = self._at_hand.pop(rank) if rank in self._at_hand else self._leases.take(rank, INCARNATION)
        epoch, start, stop = held
        if start + samples < stop:
            self._at_hand[rank] = epoch, start + samples, stop
        return epoch, start, min(stop, start + samples)

    def mini_batch(self, rank: int, size: int | None) -> tuple[int, Data]:
        """Returns the number of samples in the worker's next mini-batch, and which they are.

        It has `size` samples, or, without one, as many as one lease still has, up to the batch size.
        """
        left, pieces = size or self._batch_of(rank), []
        while left:
            self.turn = rank, left
            epoch, start, stop = self.next()
            pieces.append((epoch, start, stop))
            left = left - (stop - start) if size else 0
        return sum([stop - start for _, start, stop in pieces]), joined(pieces)

    def record(self) -> None:
        """Reports the account of the samples as it is now."""
        self._recorded(self._leases.account(self._now()))

    # ---- what the simulator tells ------------------------------------------------------------------------
    def settled(self, rank: int, fate: str, data: Data) -> None:
        """Notes the fate of a contribution; the end of an epoch is reported."""
        before = self.epochs
        self._leases.settled(rank, fate, data)
        if self.epochs > before:
            self.record()

    def unused(self, rank: int, data: Data) -> None:
        """Returns samples whose work was broken off."""
        self._leases.settled(rank, LATE, data)

    def gone(self, rank: int, pending: Data) -> None:
        """Ends the leases of a worker that is gone; only `pending` may still be applied."""
        self._leases.fenced(rank, INCARNATION, pending)
        self._at_hand.pop(rank, None)


class Dealt(LeasedBatches):
    """Yields the mini-batches that are leased to worker `rank`."""

    def __init__(
        self,
        data: Dataset,
        lending: SimulatedSampleLeases,
        rank: int,
        batch_size: int,
        *,
        seed: int,
        orders: dict[int, Indices],
    ) -> None:
        """`orders`: of the latest epochs, which all workers share, since one permutation serves them all."""
        super().__init__(data, lending, batch_size, seed=seed)
        self._lending, self._rank, self._orders = lending, rank, orders

    def _some(self, samples: int) -> Indices | None:
        """Takes samples for this worker from the queue; the lending is told whose turn it is."""
        self._lending.turn = self._rank, samples
        return super()._some(samples)
