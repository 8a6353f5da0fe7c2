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


class SampleSchedule:
    """Wraps a scheduler, and steps it by samples; everything else of the scheduler is there as well."""

    def __init__(self, scheduler: Any, every: int, samples: Callable[[], int]) -> None:
        """Makes one step for `every` of the samples that `samples` counts. Raises ConfigError for what cannot be
        stepped so."""
        if every < 1:
            raise ConfigError(f"pace.scheduler(every={every}): give the samples of one step of the schedule")
        if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            raise ConfigError("ReduceLROnPlateau goes by what you measure: call its step yourself, after evaluating")
        self._scheduler, self._every, self._samples = scheduler, every, samples
        self._done = 0

    def follow(self) -> None:
        """Makes the steps that are due."""
        due = self._samples() // self._every
        if self._done < due:
            self._scheduler.optimizer._opt_called = True  # it is, where updates are made
        while self._done < due:
            self._scheduler.step()
            self._done += 1

    def scale(self, ratio: float) -> None:
        """Multiplies the rates that the scheduler begins from; those of the optimizer are the caller's."""
        self._scheduler.base_lrs = [base * ratio for base in self._scheduler.base_lrs]

    def step(self) -> None:
        """Does nothing, so that a loop may go on calling it: `pace.step()` makes the steps."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)
