"""How long a phase may take: longer where the model is long, and not for ever."""

from __future__ import annotations

import pytest

from paceline.core.coordination.lifecycle import LEAST_BYTES_PER_S, WAIT_SECONDS, RunPhase, moving_seconds
from paceline.core.coordination.party import Party, worker
from paceline.runtime.supervisor.phase_deadlines import Deadline, RunFailed

TEN_GB = 10_000_000_000 // 4


class Run:
    """A coordinator, as far as deadlines look at it, and a clock."""

    def __init__(self, length: int = 0) -> None:
        self.phase, self.stopping, self.length = RunPhase.GATHERING, False, length
        self.now = 0.0

    def missing(self) -> list[Party]:
        return [worker(2)]

    def waits(self, phase: RunPhase, seconds: float, *, stopping: bool = False) -> None:
        deadline = Deadline(self, lambda: self.now)
        self.phase, self.stopping = phase, stopping
        deadline.check()
        self.now += seconds
        deadline.check()


def test_a_phase_names_whom_it_waited_for_and_how_long() -> None:
    with pytest.raises(RunFailed, match="waited 120 s for worker 2 while waiting for everybody to say hello"):
        Run().waits(RunPhase.GATHERING, WAIT_SECONDS + 1)


def test_who_does_not_connect_is_told_with_its_log_and_the_way_out() -> None:
    run = Run()
    deadline = Deadline(run, lambda: run.now, start_s=30.0, hint=lambda who: f"; its log is logs/{who.index}.log")
    deadline.check()
    run.now = 29.0
    deadline.check()
    run.now = 31.0
    why = "waited 30 s for worker 2 while waiting for everybody to say hello; its log is logs/2.log; --connect-timeout"
    with pytest.raises(RunFailed, match=why):
        deadline.check()


@pytest.mark.parametrize("phase", [RunPhase.PLACING_SERVERS, RunPhase.PLACING_WORKERS, RunPhase.FINISHING])
def test_a_model_of_10_gb_may_come_over_a_link_of_1_mbit_per_second(phase: RunPhase) -> None:
    """There and back, and its optimizer's vectors with it."""
    Run(TEN_GB).waits(phase, 4 * 10e9 * 8 / 1e6)


def test_it_is_given_up_all_the_same_in_the_end() -> None:
    with pytest.raises(RunFailed, match="worker 2 while placing the workers"):
        Run(TEN_GB).waits(RunPhase.PLACING_WORKERS, WAIT_SECONDS + moving_seconds(TEN_GB) + 1)


def test_a_small_model_changes_little() -> None:
    assert moving_seconds(26_122) < 4.0
    assert moving_seconds(0) == 0.0
    assert moving_seconds(1000) == 4 * 4000 / LEAST_BYTES_PER_S


def test_training_has_no_limit_and_being_told_to_stop_has() -> None:
    Run().waits(RunPhase.TRAINING, 1e9)
    with pytest.raises(RunFailed, match="waited 120 s for worker 2 while stopping the workers"):
        Run().waits(RunPhase.TRAINING, WAIT_SECONDS + 1, stopping=True)


def test_a_signal_bounds_all_that_is_left() -> None:
    run = Run(TEN_GB)
    deadline = Deadline(run, lambda: run.now)
    deadline.check()
    deadline.at_most(10.0)
    run.now = 11.0
    assert deadline.expired
    with pytest.raises(RunFailed, match="waited 10 s for worker 2"):
        deadline.check()
