"""Counts samples of virtual workers: how many all have trained, as each of them knows it, and how many it may still
train.

The rules are those of a live run (`runtime/worker/loop/sample_counts.py`). A quota is asked for without a message, a
mini-batch at a time, and what a worker has not trained of it is free again when it begins its next work.
"""

from __future__ import annotations

from collections.abc import Callable

from paceline.core.role import Role
from paceline.core.samples.batch_cut import batch_of
from paceline.core.samples.batch_limits import bounded
from paceline.core.samples.sample_budget import Budget
from paceline.core.scheme import Scheme
from paceline.core.trace import ARRIVALS, MemberChange
from paceline.engine.data.batches import Batches, BatchStream
from paceline.runtime.simulated.counters import Meters
from paceline.runtime.simulated.left_shares import SharesOfRun
from paceline.runtime.worker.loop.sample_counts import Allowance, Clock, InRounds


class _FromBudget:
    """Takes the quotas of worker `rank` from the budget of all."""

    ends_run = True

    def __init__(self, rank: int, budget: Budget, meters: Meters, workers: Callable[[], int]) -> None:
        self._rank, self._budget, self._meters, self._workers = rank, budget, meters, workers
        self._held = 0

    def size(self, batch: int, *, begins: bool) -> int:
        """Returns the samples of the next mini-batch, at most `batch`; 0 if none are left. `begins`: nothing is under
        way."""
        if begins:
            self.leave()
        workers = self._workers()
        if self._held < batch:
            self._held += self._budget.quota(self._rank, batch, batch, workers)
        return batch_of(self._held, batch) if workers > 1 else min(batch, self._held)

    def trained(self, samples: int) -> None:
        """Takes trained samples off the quota."""
        self._held -= samples

    def lost(self, samples: int) -> None:
        """Does nothing: the meters count them no more, and the next work settles by those."""

    def leave(self) -> None:
        """Returns the rest of the quota to the budget."""
        self._budget.settle(self._rank, self._meters.of[self._rank].samples)
        self._held = 0


class Counted:
    """Counts for all workers; it is the `Limit` of a simulation. `spent`: ranks that have no samples left to train."""

    def __init__(
        self,
        scheme: Scheme,
        role: Callable[[int], Role],
        meters: Meters,
        *,
        limit: int,
        batch_size: int,
        batch_limits: tuple[int, ...] = (),
    ) -> None:
        """`limit`: samples after which the run ends, 0 for never; `batch_size`: the workers' own; `batch_limits`: their
        largest ones, by rank."""
        ranks = range(len(meters.of))
        self.spent: set[int] = set()
        self._meters, self._limit, self.batch_limits = meters, limit, batch_limits
        self._own = [bounded(batch_size, largest) for largest in batch_limits or [0] * len(ranks)]
        self._shares: SharesOfRun | None = None
        self._here = set(ranks)
        self._under_way = [0] * len(ranks)
        self._steps = [0] * len(ranks)
        self._clocks = [self._clock(scheme, role, rank) for rank in ranks]
        budget = Budget(limit)
        self._allowances: list[Allowance] = []
        if limit and scheme.equal_rounds:
            self._allowances = [InRounds(limit, clock) for clock in self._clocks]
        elif limit:
            self._allowances = [_FromBudget(rank, budget, meters, self._workers) for rank in ranks]

    def _clock(self, scheme: Scheme, role: Callable[[int], Role], rank: int) -> Clock:
        """Returns the clock of worker `rank`: what it knows of the samples of all."""
        return Clock(
            lambda: role(rank),
            lock_step=scheme.lock_step,
            equal_rounds=scheme.equal_rounds,
            workers=self._workers,
            told=lambda: self._meters.total + self._under_way[rank],
        )

    def _workers(self) -> int:
        """Returns the number of workers that are present."""
        return len(self._here)

    def shared(self, streams: list[Batches], samples: int) -> list[BatchStream]:
        """Returns `streams`, the shares of all workers in `samples`: others go on with what one has left of its own."""
        self._shares = SharesOfRun(streams, self._meters, self._limit // samples)
        return [*streams]

    def heard(self, record: MemberChange) -> None:
        """Notes which workers are present."""
        if self._shares is not None:
            self._shares.heard(record)
        kind, _, rank = record.party.partition(" ")
        if kind != "worker":
            return
        if record.event in ARRIVALS:
            self._here.add(int(rank))
        else:
            self._here.discard(int(rank))
            if self._allowances:
                self._allowances[int(rank)].leave()

    @property
    def over(self) -> bool:
        """Returns True if all have left, with nothing left to train."""
        return bool(self.spent) and not self._here

    def done(self, rank: int) -> bool:
        """Returns True if worker `rank` has no samples left for the work that it is about to begin."""
        if self._allowances and not self._allowances[rank].size(self._own[rank], begins=True):
            self.spent.add(rank)
            return True
        return False

    def steps(self, rank: int) -> int:
        """Returns the mini-batches of the work that worker `rank` began last."""
        return self._steps[rank]

    def size(self, rank: int, wanted: int | None, *, begins: bool) -> int | None:
        """Returns the size of a worker's next mini-batch where it is not its own; None for its own, 0 to hand over what
        it has.

        `wanted`: the size that the scheme wants, or None.
        """
        if begins:
            self._under_way[rank] = self._steps[rank] = 0
        if not self._allowances:
            return wanted
        own = self._own[rank]
        size = self._allowances[rank].size(wanted or own, begins=begins)
        return size if wanted or size < own else None

    def trained(self, rank: int, samples: int) -> None:
        """Counts a mini-batch of worker `rank`."""
        self._under_way[rank] += samples
        self._steps[rank] += 1
        self._clocks[rank].trained(samples)
        if self._allowances:
            self._allowances[rank].trained(samples)

    def seen(self, rank: int) -> int:
        """Returns the clock of its learning-rate schedule."""
        return self._clocks[rank].now
