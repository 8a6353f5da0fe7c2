"""A thread polls before it sleeps while that pays and a core is idle."""

from __future__ import annotations

import itertools
import os

import pytest

from paceline.live import adaptive_spin
from paceline.live.adaptive_spin import (
    BUSY_FOR_SECONDS,
    COUNTED_FOR_SECONDS,
    SHARED_MAX,
    SHARED_SECONDS,
    SKIPPED_MAX,
    SPIN_SECONDS,
    AdaptiveSpin,
)

LOOK_SECONDS = 1e-6


class Machine:
    """A clock on which each look takes a microsecond, and a machine with so many runnable tasks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cores: int = 2, tasks: int | None = 2) -> None:
        monkeypatch.setattr(adaptive_spin, "cores", lambda: cores)
        monkeypatch.setattr(adaptive_spin, "_computing", [2])
        self.now, self.tasks, self.looks, self.comes_at = 0.0, tasks, 0, 0.0
        self.spin = AdaptiveSpin(runnable=lambda: self.tasks, clock=lambda: self.now)

    def poll(self) -> list[str]:
        """Finds something from `comes_at` on."""
        self.now += LOOK_SECONDS
        self.looks += 1
        return ["there"] if self.now >= self.comes_at else []

    def waits(self, seconds: float, at_most: float = 1.0) -> tuple[bool, int]:
        """Waits for what comes after so many seconds; returns whether it was found, and after how many looks."""
        self.now += COUNTED_FOR_SECONDS
        self.comes_at, self.looks = self.now + seconds, 0
        return bool(self.spin.look(self.poll, at_most)), self.looks


def test_what_comes_soon_is_found_without_sleeping(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    assert all(machine.waits(0.9 * SPIN_SECONDS)[0] for _ in range(100))


def test_a_spin_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    found, looks = machine.waits(1.0)
    assert not found
    assert looks <= SPIN_SECONDS / LOOK_SECONDS + 2
    found, looks = Machine(monkeypatch).waits(1.0, at_most=10 * LOOK_SECONDS)
    assert (found, looks <= 12) == (False, True), "a timer is due earlier"


def test_long_waits_are_spun_for_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    spins = [at for at in range(4 * SKIPPED_MAX) if machine.waits(1.0)[1]]
    assert spins[:5] == [0, 2, 6, 14, 30]
    gaps = [b - a for a, b in itertools.pairwise(spins)]
    assert gaps == sorted(gaps)
    assert max(gaps) == SKIPPED_MAX + 1


def test_a_spin_that_finds_something_ends_the_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    for _ in range(14):
        machine.waits(1.0)  # the next spin comes at the fifteenth wait
    assert machine.waits(0.5 * SPIN_SECONDS)[0]
    assert machine.waits(0.5 * SPIN_SECONDS)[0]


def test_what_is_there_already_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.waits(1.0)
    machine.waits(1.0)  # skipped
    assert machine.waits(0.0) == (True, 1)
    machine.waits(1.0)
    assert [machine.waits(1.0)[1] for _ in range(3)] == [0, 0, 0], "the penalty has grown from 1 to 3"


@pytest.mark.parametrize(("cores", "tasks"), [(2, 3), (1, 1), (2, None)], ids=["busy", "one core", "unknown"])
def test_nobody_spins_where_no_core_is_idle(monkeypatch: pytest.MonkeyPatch, cores: int, tasks: int | None) -> None:
    machine = Machine(monkeypatch, cores, tasks)
    assert [machine.waits(0.5 * SPIN_SECONDS) for _ in range(3)] == [(False, 0)] * 3
    machine.tasks = 1
    assert machine.waits(0.5 * SPIN_SECONDS)[0] == (cores > 1)


def test_a_task_that_ran_for_a_moment_costs_few_spins_and_a_busy_machine_few_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch)
    counted: list[float] = []

    def runnable() -> int:
        counted.append(machine.now)
        return 3 if len(counted) == 1 or machine.now > 1.0 else 2

    spin = AdaptiveSpin(runnable=runnable, clock=lambda: machine.now)

    def wait_ends_at(now: float) -> bool:
        machine.now = machine.comes_at = now
        return bool(spin.look(machine.poll, 1.0))

    assert not wait_ends_at(0.0), "somebody else wants a core"
    assert not wait_ends_at(0.9 * BUSY_FOR_SECONDS), "that is not asked again yet"
    assert wait_ends_at(BUSY_FOR_SECONDS)
    for at in range(1000):  # 1 s of waits, one a millisecond, on a machine that stays busy
        wait_ends_at(2.0 + at * 1e-3)
    assert len([now for now in counted if now >= 2.0]) <= 1.0 / COUNTED_FOR_SECONDS + 6


def test_a_thread_leaves_the_core_on_which_the_other_side_runs_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    moved: list[float] = []
    other_runs = 0.0

    def give_way() -> None:
        machine.now += other_runs

    spin = AdaptiveSpin(
        runnable=lambda: 2, give_way=give_way, clock=lambda: machine.now, move=lambda: moved.append(machine.now)
    )

    def waits(times: int) -> int:
        before = len(moved)
        for _ in range(times):
            machine.comes_at = machine.now + 2 * SHARED_SECONDS
            assert spin.look(machine.poll, 1.0)
        return len(moved) - before

    assert waits(3 * SHARED_MAX) == 0, "the other side is elsewhere"
    other_runs = 3 * SHARED_SECONDS
    assert waits(SHARED_MAX - 1) == 0
    assert waits(1) == 1
    assert waits(SHARED_MAX - 1) == 0, "the row began anew"
    other_runs = 0.0
    waits(1)
    other_runs = 3 * SHARED_SECONDS
    assert waits(SHARED_MAX - 1) == 0, "they must be in a row"


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="threads have no affinity here")
def test_a_thread_that_moved_may_use_all_its_cores() -> None:
    before = os.sched_getaffinity(0)
    for _ in range(4):
        adaptive_spin.leave_core()
        assert os.sched_getaffinity(0) == before


def test_nobody_spins_where_the_run_has_more_processes_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    adaptive_spin.share_host(3)
    assert machine.waits(0.5 * SPIN_SECONDS) == (False, 0)
    adaptive_spin.share_host(2)
    assert machine.waits(0.5 * SPIN_SECONDS)[0]


def test_polling_is_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptive_spin.time, "process_time", lambda: 5.0)
    machine = Machine(monkeypatch)
    before = adaptive_spin.working_seconds()
    machine.waits(0.5 * SPIN_SECONDS)
    assert before - adaptive_spin.working_seconds() == pytest.approx(0.5 * SPIN_SECONDS, rel=0.01)
    machine.waits(1.0)
    assert before - adaptive_spin.working_seconds() == pytest.approx(1.5 * SPIN_SECONDS, rel=0.01)


def test_linux_says_how_many_tasks_run() -> None:
    counted = adaptive_spin._runnable_tasks()
    assert counted is None or counted >= 1
