"""Cores that are shared, and tasks that wait for their process."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.sim.kernel.event_queue import Heap
from paceline.sim.kernel.shared_cores import HostCores, TaskQueue


class Host:
    """A host whose tasks note when they end, under their name."""

    def __init__(self, cores: int) -> None:
        self.heap, self.now = Heap(), 0.0
        self.cores = HostCores(self.heap, cores)
        self.ended: dict[str, float] = {}

    def task(self, name: str, seconds: float, threads: int = 1) -> tuple[Any, ...]:
        return seconds, threads, self._note, name, None, None

    def _note(self, name: str, _: None, __: None) -> None:
        self.ended[name] = pytest.approx(self.now)

    def begin(self, at: float, name: str, seconds: float, threads: int = 1) -> None:
        task = self.task(name, seconds, threads)
        self.heap.put(at, lambda *_: self.cores.begin(self.now, task), None, None, None)

    def run(self) -> dict[str, float]:
        for _ in range(1000):
            if not (events := sorted(self.heap, key=lambda event: event[:2])):
                return self.ended
            at, number, act, args = events[0]
            self.heap.change(lambda event, number=number: None if event[1] == number else event[0])  # type: ignore[misc]
            self.now = at
            act(*args)
        raise AssertionError("tasks that never end")


def test_tasks_on_free_cores_take_their_own_time() -> None:
    host = Host(2)
    host.begin(0.0, "a", 1.0)
    host.begin(0.5, "b", 2.0)
    assert host.run() == {"a": 1.0, "b": 2.5}


def test_three_tasks_on_two_cores_as_the_example_has_it() -> None:
    host = Host(2)
    for name in "ABC":
        host.begin(0.0, name, 6.0)
    ended = host.run()
    assert sorted(ended.values(), key=lambda at: at.expected) == [6.0, 9.0, 9.0]


def test_one_core_is_shared_evenly() -> None:
    host = Host(1)
    host.begin(0.0, "long", 3.0)
    host.begin(1.0, "short", 1.0)
    assert host.run() == {"short": 3.0, "long": 4.0}


def test_a_task_of_two_threads_uses_two_cores() -> None:
    host = Host(2)
    host.begin(0.0, "two", 2.0, threads=2)
    assert host.run() == {"two": 1.0}
    host = Host(1)
    host.begin(0.0, "two", 2.0, threads=2)
    assert host.run() == {"two": 2.0}


def test_without_a_number_of_cores_nobody_waits_for_one() -> None:
    host = Host(0)
    for name in "ABC":
        host.begin(0.0, name, 6.0)
    assert host.run() == dict.fromkeys("ABC", 6.0)


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_no_work_is_lost_and_no_core_idles_while_tasks_share_one(cores: int) -> None:
    host = Host(cores)
    seconds = [0.3, 1.7, 0.9, 2.2, 0.1, 1.1, 0.7]
    for n, one in enumerate(seconds):
        host.begin(0.0, str(n), one)
    last = max(at.expected for at in host.run().values())
    assert len(host.ended) == len(seconds)
    assert sum(seconds) / cores <= last * (1 + 1e-9)
    # The last core may be alone with the longest task; before that all are busy.
    assert last <= sum(seconds) / cores + max(seconds)


def test_the_tasks_of_a_process_run_in_turn_and_what_one_causes_comes_first() -> None:
    host = Host(2)
    queue = TaskQueue(host.cores, lambda: host.now)
    answer = host.task("answer", 0.5)

    def answers(*_: Any) -> None:
        host._note("first", None, None)
        queue.add(answer)  # type: ignore[arg-type]

    def arrive(*_: Any) -> None:
        queue.add((1.0, 1, answers, None, None, None))
        queue.add(host.task("second", 1.0))  # type: ignore[arg-type]

    host.heap.put(0.0, arrive, None, None, None)
    assert host.run() == {"first": 1.0, "answer": 1.5, "second": 2.5}


def test_a_thread_that_goes_on_at_once_keeps_its_core() -> None:
    """Two make a task of 6 s after another, and one makes 9 s. It shares a core for as long as both go on."""
    host = Host(2)
    ended: list[tuple[str, float]] = []

    def task(name: str, seconds: float, left: int) -> tuple[Any, ...]:
        return seconds, 1, again, name, seconds, left

    def again(name: str, seconds: float, left: int) -> None:
        ended.append((name, host.now))
        if left:
            host.cores.begin(host.now, task(name, seconds, left - 1))

    for name, seconds, left in (("A", 6.0, 1), ("B", 6.0, 1), ("C", 9.0, 0)):
        host.heap.put(0.0, lambda *_, of=(name, seconds, left): host.cores.begin(host.now, task(*of)), None, None, None)
    host.run()
    assert sorted(ended) == [("A", 12.0), ("A", 18.0), ("B", 6.0), ("B", 12.0), ("C", 15.0)]
