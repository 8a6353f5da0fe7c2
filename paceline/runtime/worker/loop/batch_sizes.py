"""How large a worker's next mini-batch is: by the loop, by the scheme, and by what may still be trained."""

from __future__ import annotations

from paceline.runtime.worker.loop.sample_counts import Allowance, Clock
from paceline.runtime.worker.steps.local_work import LocalWork


class BatchSizes:
    """Of one worker. `clock` counts the samples of all; `allowance` bounds them, None where nothing does."""

    def __init__(self, work: LocalWork, clock: Clock, allowance: Allowance | None) -> None:
        self._work, self.clock, self.allowance = work, clock, allowance
        self.own = 0  # samples, as the loop asks for them; 0 where it takes its batches from elsewhere
        self.spent = False  # are there no samples left to train?

    @property
    def by_scheme(self) -> int | None:
        """Size of the next mini-batch where the scheme says it."""
        return self._work.samples_wanted

    def next(self) -> int | None:
        """What the scheme says, or less where no more may be trained; None: the loop's own size."""
        if self.allowance is None:
            return self.by_scheme
        size = self.allowance.size(self.by_scheme or self.own, begins=self._work.begins)
        self.spent = not size
        return size if self.by_scheme or size < self.own else None

    def trained(self, samples: int) -> bool:
        """Counts a mini-batch. Returns whether it is the last that may be trained for this exchange."""
        self.clock.trained(samples)
        if self.allowance is None:
            return False
        self.allowance.trained(samples)
        wanted = self.by_scheme or self.own or samples
        return self._work.left > 1 and not self.allowance.size(wanted, begins=False)

    def part_of_a_batch(self, samples: int) -> float:
        """So many samples against a whole mini-batch of the loop's own size."""
        return samples / self.own if self.own else 1.0
