"""Decides how many steps a scheduler makes when the loop of one of several workers calls `scheduler.step()`.

A schedule is written for the plain loop, which makes all the steps. A worker makes a part of them. So where the workers
share one pass over the data, a call counts for what all of them have trained meanwhile:

    steps due = calls * (samples of all / samples of this worker) * fullness

`fullness` is how many batches of the plain loop one of this worker's batches is, on average: a short one at the end of
a share, or one of a scheme's size, is a fraction, so that a pass of all workers makes `len(loader)` steps. A worker
that is alone makes one step a call, as it would without us. After a resume the first call makes all that are behind.

    the loop calls step()                        it makes
    within a pass over data of pace              the steps due
    after a pass, as once an epoch               one: an epoch is of all workers as it is
    over data of its own                         one, as each worker goes through all of it; the steps due where
                                                 pace.shard divides it, or the run ends after samples of all, and the
                                                 call comes after each pace.step()
    join(schedule="own"), data without end       one: the loop's end is this worker's own
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from paceline.runtime.worker.schedules.sample_schedule import SampleSchedule
from paceline.runtime.worker.schedules.schedule_steps import ScheduleSteps, parts_of, position_of
from paceline.runtime.worker.schedules.scheduler_calls import make_step, unwatch, watch

OF_ALL = 'give it the batches of the whole run, or paceline.join(..., schedule="own")'
"""The way out, where the length of a schedule does not fit the run."""
ROUNDED = 1e-6
"""Of a step: what sums of fractions may be off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopProgress:
    """Describes how far a worker's loop is, and all workers.

    samples: of all workers, earlier incarnations included. own, steps: of this worker, in this process.
    fullness: batches of the plain loop in one of this worker's. shared: does the loop end when all workers together
    have trained so much? passing: is a pass over data of pace under way? None where the loop has data of its own.
    """

    samples: int = 0
    own: int = 0
    steps: int = 0
    fullness: float = 1.0
    shared: bool = False
    passing: bool | None = None
    over: bool = False


class LoopSchedule:
    """Steps one scheduler of the loop. `before`: what was trained before it began."""

    def __init__(self, scheduler: Any, before: LoopProgress, *, own: bool, says: bool) -> None:
        self.steps, self._before, self._own = ScheduleSteps(scheduler, says=says), before, own
        self._calls = self._steps_at = 0
        self._by_step = self._follows = False

    def called(self, now: LoopProgress) -> None:
        """Makes the steps that a call of `scheduler.step()` stands for."""
        since, self._steps_at = now.steps - self._steps_at, now.steps
        self._by_step = since <= 1 if now.passing is None else self._by_step or now.passing
        self._follows = not self._own and now.shared and self._by_step and now.own > self._before.own
        if not self._follows:
            self.steps.make()
        elif since or not now.over:  # once the run is over `pace.step()` trains nothing
            self._calls += 1
            self._make_due(now)
            self.steps.name_past(f"here it counts the steps of all workers; {OF_ALL}")

    def _make_due(self, now: LoopProgress) -> None:
        """Makes the steps that the calls so far stand for."""
        before, own = self._before, now.own - self._before.own
        worth = self._calls / own * now.fullness  # steps of the schedule in one sample
        begun = worth * before.samples
        if not before.own:  # an earlier incarnation made whole steps
            begun = math.floor(begun + ROUNDED)
        samples = max(now.samples, before.samples + own)
        self.steps.make_due(math.floor(worth * samples - begun + ROUNDED))

    def end(self, now: LoopProgress) -> None:
        """Makes the steps that others have trained for since the last call, and names the schedule if it is not at
        its end."""
        if self._own:
            self.steps.name_lack('each worker steps it for itself, as join(..., schedule="own") asks')
        elif self._follows:
            self._make_due(now)
            self.steps.name_lack(f"here it counts the steps of all workers; {OF_ALL}")
        else:
            self.steps.name_lack(
                "each worker steps it for itself; pace.scheduler(scheduler, every=...), of the samples of a step, goes "
                "by those of all workers"
            )

    def follow(self) -> None:
        """Does nothing: its steps are made when the loop calls for them."""

    def scale(self, ratio: float) -> None:
        """Multiplies the rates that the scheduler goes by."""
        self.steps.scale(ratio)


class LoopSchedules:
    """Steps the schedulers that a loop has for its optimizers."""

    def __init__(
        self,
        optimizers: Sequence[torch.optim.Optimizer],
        progress: Callable[[], LoopProgress],
        found: Callable[[LoopSchedule], None] = lambda schedule: None,
        *,
        own: bool,
        says: bool,
    ) -> None:
        """own: each worker steps them for itself. says: lines name those that miss their end.

        `found` is given each scheduler whose steps are meant to be what they are.
        """
        self.optimizers, self._progress, self._found = optimizers, progress, found
        self._own, self._says = own, says
        self._begun = progress()
        self._made: weakref.WeakKeyDictionary[Any, LoopProgress] = weakref.WeakKeyDictionary()
        self._schedules: dict[int, LoopSchedule] = {}  # by the id of the scheduler, which they hold
        self._given: dict[int, SampleSchedule] = {}
        watch(self)

    def add(self, schedule: SampleSchedule) -> None:
        """Adds a scheduler that `pace.scheduler` was given: its own `step` does nothing any more, either."""
        self._given[id(schedule.steps.scheduler)] = schedule

    def made(self, scheduler: Any) -> None:
        """Notes where a scheduler begins that is made while the run goes on."""
        now = self._progress()
        if now.steps:
            self._made[scheduler] = now

    def called(self, scheduler: Any) -> None:
        """Handles `scheduler.step()` of the loop."""
        now = self._progress()
        if id(scheduler) in self._given:
            return
        if not now.steps:  # before training each call is what it says
            make_step(scheduler)
            return
        if id(scheduler) not in self._schedules:
            schedule = LoopSchedule(scheduler, self._before(scheduler), own=self._own, says=self._says)
            self._schedules[id(scheduler)] = schedule
            if self._own or now.shared:
                self._found(schedule)
        self._schedules[id(scheduler)].called(now)

    def _before(self, scheduler: Any) -> LoopProgress:
        """Returns what was trained before a scheduler began: nothing of this run, unless it was made in the middle of
        it, or has made steps in an earlier one."""
        for part in (scheduler, *parts_of(scheduler)):
            if part in self._made:
                return self._made[part]
        return self._begun if position_of(scheduler) else LoopProgress()

    def end(self, *, in_full: bool) -> None:
        """Gives the schedulers back to the loop; `in_full`: the run was meant to end here."""
        unwatch(self)
        if in_full:
            now = self._progress()
            for schedule in self._schedules.values():
                schedule.end(now)
            for given in self._given.values():
                given.end()
