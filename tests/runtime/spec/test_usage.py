"""What a process tells of its memory, its cores and its links."""

from __future__ import annotations

import pytest

from paceline.core.coordination.party import COORDINATOR, EVALUATOR, Party, server, worker
from paceline.core.trace import LinkTraffic, ResourceUse
from paceline.runtime.spec.usage import LINKS_MAX, Usage, tells

MIB = 1 << 20


class Counter:
    """Counts what the test says."""

    def __init__(self) -> None:
        self.bytes: dict[Party, tuple[int, int]] = {}

    def traffic_with(self) -> dict[Party, tuple[int, int]]:
        return dict(self.bytes)


def links(usage: Usage) -> dict[str, tuple[int, int]]:
    """Returns what a call tells of each link."""
    return {r.other: (r.sent, r.received) for r in usage() if isinstance(r, LinkTraffic)}


def test_memory_and_cores_of_this_process_are_told_and_no_device_of_a_cpu() -> None:
    usage = Usage(worker(2), "cpu", Counter(), lambda: 4.5)
    told, *rest = usage()
    assert rest == []
    assert isinstance(told, ResourceUse)
    assert (told.at, told.party) == (4.5, "worker 2")
    assert told.memory_bytes > 10 * MIB
    assert told.cores >= 0
    assert (told.device_bytes, told.device_total_bytes, told.device_share) == (0, 0, -1.0)


def test_the_bytes_of_a_link_are_those_since_the_call_before() -> None:
    counter = Counter()
    usage = Usage(worker(2), "cpu", counter, lambda: 1.0)
    counter.bytes = {server(0): (100, 50), server(1): (0, 7), COORDINATOR: (9, 9)}
    assert links(usage) == {"server 0": (100, 50), "server 1": (0, 7)}
    counter.bytes |= {server(0): (150, 50)}
    assert links(usage) == {"server 0": (50, 0)}
    assert links(usage) == {}


def test_a_connection_to_a_later_incarnation_counts_from_zero() -> None:
    counter = Counter()
    counter.bytes = {server(0): (100, 50)}
    usage = Usage(worker(2), "cpu", counter, lambda: 1.0)
    counter.bytes = {server(0): (30, 10)}
    assert links(usage) == {"server 0": (30, 10)}


def test_of_many_links_the_busiest_are_told() -> None:
    counter = Counter()
    usage = Usage(worker(99), "cpu", counter, lambda: 1.0)
    counter.bytes = {worker(rank): (rank + 1, 0) for rank in range(90)}
    assert set(links(usage)) == {f"worker {rank}" for rank in range(90 - LINKS_MAX, 90)}


@pytest.mark.parametrize(
    ("one", "another"),
    [(worker(0), server(3)), (worker(2), worker(1)), (server(1), server(0)), (EVALUATOR, worker(5))],
)
def test_one_end_of_a_link_tells_it(one: Party, another: Party) -> None:
    assert tells(one, another)
    assert not tells(another, one)


def test_links_to_the_coordinator_are_left_out() -> None:
    assert not tells(worker(0), COORDINATOR)
