"""How long a phase may take, and whom a run that takes longer names."""

from __future__ import annotations

import pytest

from paceline.core.coordination.lifecycle import WAIT_SECONDS, RunPhase
from paceline.core.coordination.party import Party, worker
from paceline.core.coordinator.phase_deadline import PhaseDeadline


class Run:
    """A coordinator, as far as deadlines look at it, and a clock."""

    def __init__(self) -> None:
        self.phase, self.stopping, self.length = RunPhase.GATHERING, False, 0
        self.now, self.waits_for = 0.0, [worker(2)]

    def missing(self) -> list[Party]:
        return self.waits_for


def begun() -> tuple[Run, PhaseDeadline]:
    run = Run()
    deadline = PhaseDeadline(run, lambda: run.now)
    assert deadline.overdue() == ""
    return run, deadline


def test_each_phase_has_all_its_time() -> None:
    run, deadline = begun()
    for phase in (RunPhase.READYING, RunPhase.PLACING_SERVERS, RunPhase.PLACING_WORKERS):
        run.now += WAIT_SECONDS
        assert deadline.overdue() == ""
        run.phase = phase
        assert deadline.overdue() == ""
    run.now += WAIT_SECONDS + 1
    assert deadline.overdue() == "waited 120 s for worker 2 while placing the workers"


@pytest.mark.parametrize("phase", [RunPhase.TRAINING, RunPhase.OVER])
def test_training_has_no_limit_and_a_run_that_is_over_needs_none(phase: RunPhase) -> None:
    run, deadline = begun()
    run.phase = phase
    assert deadline.overdue() == ""
    run.now += 1e9
    assert deadline.overdue() == ""
    run.stopping = True
    assert deadline.overdue() == ""
    run.now += WAIT_SECONDS + 1
    assert deadline.overdue() == "waited 120 s for worker 2 while stopping the workers"


def test_of_many_only_a_few_are_named() -> None:
    run, deadline = begun()
    run.waits_for = [worker(rank) for rank in range(9)]
    run.now = WAIT_SECONDS + 1
    assert deadline.overdue().startswith("waited 120 s for worker 0, worker 1, worker 2, worker 3 while")


def test_all_that_is_left_may_be_bounded_altogether() -> None:
    run, deadline = begun()
    deadline.at_most(10.0)
    run.phase, run.now = RunPhase.FINISHING, 9.0
    assert not deadline.expired
    assert deadline.overdue() == ""
    run.now = 11.0
    assert deadline.expired
    assert deadline.overdue() == "waited 10 s for worker 2 while evaluating and saving the last model"
