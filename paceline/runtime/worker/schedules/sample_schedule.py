"""A scheduler of torch's that goes by the samples of all workers, not by the steps of one.

    plain loop, one worker      scheduler.step() after each optimizer.step(), of B samples
    here, any number of them    one step for every B samples that all workers together have trained

So a schedule means the same with any number of workers and under any scheme.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from paceline.core.errors import ConfigError
from paceline.runtime.worker.schedules.schedule_steps import ScheduleSteps, length_of, position_of


class SampleSchedule:
    """Wraps a scheduler, and steps it by samples; everything else of the scheduler is there as well."""

    def __init__(self, scheduler: Any, every: int, samples: Callable[[], int], *, says: bool = True) -> None:
        """Makes one step for `every` of the samples that `samples` counts. A scheduler that has made steps already, as
        one whose state was loaded, goes on from there. `says`: a line names one that misses its end.

        Raises ConfigError for what cannot be stepped so.
        """
        if every < 1:
            raise ConfigError(f"pace.scheduler(every={every}): give the samples of one step of the schedule")
        if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            raise ConfigError(
                "ReduceLROnPlateau goes by what you measure: pace.plateau(scheduler), and step it after evaluating"
            )
        self.steps, self._every, self._samples = ScheduleSteps(scheduler, says=says), every, samples
        self.steps.made = self._due if position_of(scheduler) else 0

    @property
    def _due(self) -> int:
        """Returns the steps that all samples so far are."""
        return self._samples() // self._every

    def follow(self) -> None:
        """Makes the steps that are due."""
        self.steps.make_due(self._due)
        self.steps.name_past(f"{self._told}; see that every is the samples between two of its steps")

    def end(self) -> None:
        """Makes the last steps that are due, and names the schedule if `every` does not fit the run."""
        self.follow()
        fits = max(1, self._samples() // (length_of(self.steps.scheduler) or 1))
        self.steps.name_lack(f"{self._told}; every={fits} makes all of them")

    @property
    def _told(self) -> str:
        every = f"pace.scheduler(every={self._every}) makes one for {self._every:,} samples"
        return f"{every}, and all workers have trained {self._samples():,}"

    def scale(self, ratio: float) -> None:
        """Multiplies the rates that the scheduler begins from; those of the optimizer are the caller's."""
        self.steps.scale(ratio)

    def step(self) -> None:
        """Does nothing, so that a loop may go on calling it: `pace.step()` makes the steps."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["steps"].scheduler, name)
