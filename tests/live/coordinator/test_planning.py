"""What the coordinator decides from what everybody has said of itself: is a core idle while others compute?"""

from __future__ import annotations

import pytest

from paceline.core.coordination.control_messages import Hello
from paceline.live.coordinator.planning import crowded
from paceline.live.protocol.transport import SHARED, TCP


def hello(host: str = "here", device: str = "cpu", cores: int = 2) -> Hello:
    return Hello(address="a", pid=1, host=host, device=device, cores=cores)


@pytest.mark.parametrize(
    ("workers", "servers", "why"),
    [
        ([hello()] * 2, [hello()], "3 processes of here share 2 cores"),
        ([hello(cores=1)], [hello(cores=1)], "2 processes of here share 1 core"),
        ([hello(), hello(cores=1)], [hello()], "3 processes of here share 1 core"),
        ([hello()] * 3, [], "3 processes of here share 2 cores"),
        ([hello()], [hello()], ""),
        ([hello()] * 2, [hello("there")], ""),
        ([hello(), hello("there")], [hello()], ""),
        ([hello(device="cuda:0"), hello(device="cuda:1")], [hello()], ""),
        ([hello(device="xpu:0"), hello(device="xpu:1")], [hello()], ""),
        ([hello(device="cuda:0"), hello()], [hello()] * 2, "3 processes of here share 2 cores"),
        ([hello(cores=0)] * 2, [hello()], ""),
    ],
    ids=[
        "two workers and a server",
        "one core",
        "one process may use fewer",
        "no server",
        "a core for each",
        "the server elsewhere",
        "a worker elsewhere",
        "GPUs compute",
        "GPUs of another maker do",
        "one of them does",
        "nobody looked",
    ],
)
def test_a_core_is_idle_unless_more_compute_than_are(workers: list[Hello], servers: list[Hello], why: str) -> None:
    assert crowded(workers, servers) == why


def test_nobody_is_crowded_where_vectors_travel_by_tcp_as_one_host_may_stand_for_several() -> None:
    assert crowded([hello()] * 2, [hello()], {TCP}) == ""
    assert crowded([hello()] * 2, [hello()], {SHARED}) != ""


def bound(*cpus: int) -> Hello:
    return Hello(address="a", pid=1, host="here", device="cpu", cores=len(cpus), cpus=cpus)


def test_workers_that_are_bound_to_a_part_each_count_the_cores_of_all() -> None:
    assert crowded([bound(0), bound(1)], [bound(0, 1, 2)]) == ""
    assert crowded([bound(0), bound(1)], [bound(0, 1)]) == "3 processes of here share 2 cores"
