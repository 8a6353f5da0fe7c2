"""Decides how large a worker's next mini-batch is: by loop or scheme, its largest batch, what may still be trained."""

from __future__ import annotations

from paceline.core.samples.batch_limits import bounded
from paceline.runtime.worker.loop.sample_counts import Allowance, Clock
from paceline.runtime.worker.steps.local_work import LocalWork


class BatchSizes:
    """Decides for one worker.

    clock      counts the samples of all workers
    limit      samples that all train together; 0 where nobody has said
    allowance  says how many of them are this worker's
    largest    batch of this worker, in samples; 0 for any
    """

    def __init__(
        self, work: LocalWork, clock: Clock, limit: int, allowance: Allowance | None, largest: int = 0
    ) -> None:
        self._work, self.clock, self._limit, self.allowance = work, clock, limit, allowance
        self._largest = largest
        self._used: list[Allowance | None] = []  # by the batches since the last step
        self._bounds: list[Allowance] = []  # of the batches of the last step
        self.own = 0  # samples, as the loop asks for them; 0 where it takes its batches from elsewhere
        self.spent = False  # is the run over for want of samples?

    @property
    def by_scheme(self) -> int | None:
        """Returns the size of the next mini-batch where the scheme says it; otherwise None."""
        wanted = self._work.samples_wanted
        return None if wanted is None else self.bounded(wanted)

    def bounded(self, batch: int) -> int:
        """Returns the size of this worker's batches where the loop asks for `batch`."""
        return bounded(batch, self._largest)

    @property
    def all_exchanged(self) -> bool:
        """Returns True if nothing was trained since the last exchange."""
        return self._work.begins

    def next(self, allowance: Allowance | None, own: int) -> int | None:
        """Returns the size that the scheme says, or less where no more may be trained; None for the loop's `own`
        size, as far as it is bounded."""
        self.use(allowance, own)
        if allowance is None:
            return self.by_scheme
        size = allowance.size(self.by_scheme or self.bounded(own), begins=self._work.begins)
        self.spent = not size and allowance.ends_run
        return size if self.by_scheme or size != self.bounded(own) else None

    def use(self, allowance: Allowance | None, own: int) -> None:
        """Notes that the next mini-batch, of the loop's `own` size, is bounded by `allowance`."""
        self.own = own
        if allowance not in self._used:
            self._used.append(allowance)

    def trained(self, samples: int, counted: int, *, whole: bool = True) -> bool:
        """Counts a mini-batch. Returns whether it is the last that may be trained for this exchange.

        counted: those of its samples that no other model has trained before. whole: may this be all of its steps?
        """
        self.clock.trained(counted)
        used, self._used = self._used, []
        if not self.own:  # the loop has batches from elsewhere
            if self.clock.total_in_step and (self._work.left < 2 or not self.clock.equal_rounds):
                return False  # the next exchange says (`exchanged`)
            self.spent = 0 < self._limit <= self.clock.reported
            return self.spent
        if used:
            self._bounds = [allowance for allowance in used if allowance is not None]
            for allowance in self._bounds:
                allowance.trained(samples)
        wanted = self.by_scheme or self.bounded(self.own)
        return whole and self._work.left > 1 and any(not bound.size(wanted, begins=False) for bound in self._bounds)

    def exchanged(self) -> None:
        """Notes that an exchange may have given a new total, of a loop that has batches from elsewhere.

        In lock-step only the total tells whether the run is over: the others may have other batches than this worker,
        or rounds of another length. All know it after the same exchange, so that all end there, and no step is left
        over.
        """
        if not self.own and self.clock.total_in_step:
            self.spent = 0 < self._limit <= self.clock.total

    def part_of_a_batch(self, samples: int) -> float:
        """Returns `samples` as a fraction of a mini-batch of the loop's own size, for emulated steps of a fixed
        length."""
        return samples / self.own if self.own else 1.0
