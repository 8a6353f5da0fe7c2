"""A worker that makes no step for long while others wait for it is named, once, and stays."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.decisions import WriteRecord
from paceline.core.coordination.party import Party, worker
from paceline.core.coordinator.standstill import NAMED_AFTER_S, NAMED_AFTER_STEPS
from paceline.core.fault_tolerance.membership import FIRST_STEP
from paceline.core.trace import NO_STEPS, Decided
from tests.core.coordinator.test_machine import Driver

W0, W1, W2 = map(worker, range(3))


class Workers(Driver):
    """Three workers that report each second. `in_loop`: since when a worker's loop has been without a step."""

    def __init__(self, step_s: float = 0.1) -> None:
        super().__init__(workers=3)
        self.trains()
        self.step_s = step_s
        self.steps = dict.fromkeys((W0, W1, W2), 1)
        self.in_loop: dict[Party, float] = {}
        self.named: list[tuple[int, str]] = []

    def pass_seconds(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self.now += 1.0
            for who, steps in self.steps.items():
                sums: dict[str, Any] = dict.fromkeys(("samples", "exchanges", "bytes_up", "bytes_down"), 0)
                sums |= dict.fromkeys(("seconds_waiting", "seconds_communicating"), 0.0)
                since = self.in_loop.get(who, self.now)
                report = control.Progress(
                    steps=steps, seconds_computing=steps * self.step_s, seconds_in_loop=self.now - since, **sums
                )
                records = [action.record for action in self.told(who, report) if isinstance(action, WriteRecord)]
                decided = [record for record in records if isinstance(record, Decided) and record.verdict == NO_STEPS]
                self.named += [(record.rank, record.reason) for record in decided]


def test_a_worker_that_others_wait_for_is_named_once() -> None:
    workers = Workers()
    workers.in_loop[W1] = workers.now
    workers.pass_seconds(NAMED_AFTER_S + 1)
    assert workers.named == []
    workers.pass_seconds(100)
    assert workers.named == [(1, "its loop has been without pace.step() for 32 s, and 2 workers wait for it")]


def test_who_trains_on_waits_for_nobody() -> None:
    """Under `asp` a loop that evaluates for long holds nobody up."""
    workers = Workers()
    workers.in_loop[W1] = workers.now
    for _ in range(100):
        workers.steps[W0] += 1
        workers.steps[W2] += 1
        workers.pass_seconds(1)
    assert workers.named == []
    workers.pass_seconds(NAMED_AFTER_S - 1)  # both stand still now
    workers.steps[W2] += 1
    workers.pass_seconds(2)
    assert workers.named == [(1, "its loop has been without pace.step() for 131 s, and worker 0 waits for it")]


@pytest.mark.parametrize(("steps", "times"), [(1, 1.0), (0, FIRST_STEP)])
def test_a_slow_step_or_the_first_one_takes_longer(steps: int, times: float) -> None:
    workers = Workers(step_s=3.0)
    workers.steps[W1], workers.in_loop[W1] = steps, workers.now
    limit = (NAMED_AFTER_STEPS * 3.0 if steps else NAMED_AFTER_S) * times
    workers.pass_seconds(limit)
    assert workers.named == []
    workers.pass_seconds(2)
    assert [rank for rank, _ in workers.named] == [1]


def test_one_that_has_left_holds_nobody_up() -> None:
    workers = Workers()
    workers.in_loop[W1] = workers.now
    workers.pass_seconds(NAMED_AFTER_S)
    workers.told(W1, control.Left(reason="epochs"))
    workers.steps[W0] += 1
    workers.pass_seconds(100)
    assert workers.named == []
