"""Which host gets which workers and servers."""

from __future__ import annotations

import pytest

from paceline.core.coordination import party
from paceline.core.errors import ConfigError
from paceline.launch.remote.hostfile import parse_hosts
from paceline.launch.remote.placement import place


def test_workers_fill_slots_in_the_order_of_the_file() -> None:
    placed = place(parse_hosts("a slots=2 gpus=3\nb slots=1 group=g"), 3, 2)
    assert placed.workers == (0, 0, 1)
    assert placed.slots == (0, 1, 0)
    assert [placed.device_of(rank) for rank in range(3)] == ["cuda:3", "cuda:3", "auto"]
    assert placed.servers == (0, 1)
    assert placed.groups() == "0,1;2"
    assert placed.parties_of(0) == [party.server(0), party.worker(0), party.worker(1)]


def test_a_worker_that_is_a_node_has_all_gpus_and_a_process_for_each() -> None:
    placed = place(parse_hosts("a gpus=0-2 worker=node\nb slots=1"), 2, 1)
    assert [placed.device_of(rank) for rank in range(2)] == ["cuda:0+1+2", "auto"]
    assert [placed.ranks_of(rank) for rank in range(2)] == [3, 1]


def test_more_workers_than_written_slots_are_refused() -> None:
    with pytest.raises(ConfigError, match="4 workers and 3 slots in the hosts file: give -n 3"):
        place(parse_hosts("a slots=2\nb slots=1"), 4, 1)


def test_where_nobody_wrote_slots_workers_are_dealt_out_again_and_again() -> None:
    placed = place(parse_hosts("a group=x\nb group=y\nc group=x"), 5, 0)
    assert placed.workers == (0, 0, 1, 1, 2)
    assert placed.groups() == "0,1,4;2,3"


def test_ranks_of_a_plain_file_are_those_that_mxnet_gave() -> None:
    """Addresses in descending order, as text; `groups` and `data_sharding` files were written for that."""
    placed = place(parse_hosts("10.0.0.1\n10.0.0.9\n10.0.0.10\n10.0.0.1\n"), 4, 0)
    assert [placed.hosts[host].name for host in placed.workers] == ["10.0.0.9", "10.0.0.10", "10.0.0.1", "10.0.0.1"]


def test_servers_go_to_their_own_hosts_or_to_fast_ones_first() -> None:
    assert place(parse_hosts("a\nb role=server\nc role=server"), 1, 3).servers == (1, 2, 1)
    assert place(parse_hosts("a\nb speed=3\nc role=worker speed=9"), 1, 3).servers == (1, 0, 1)


@pytest.mark.parametrize(("text", "kind"), [("a role=server", "workers"), ("a role=worker", "servers")])
def test_a_file_without_room_for_a_kind_of_party_is_refused(text: str, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"where shall {kind} run"):
        place(parse_hosts(text), 1, 1)
