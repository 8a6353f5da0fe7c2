from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from paceline.core.errors import ConfigError, PeerLost
from paceline.runtime.worker.ranks.local_group import FRAME, LocalGroup, gloo, process_group
from tests.runtime.worker.ranks.one_rank import process_group_alone
from tests.runtime.worker.ranks.rank_threads import on_ranks


def test_an_order_reaches_all_others_however_long_it_is() -> None:
    long = "x" * (2 * FRAME)

    def work(link: LocalGroup) -> Any:
        if not link.rank:
            link.order("step")
            link.order("failed", why=long)
            return None
        return link.hear(), link.hear()

    expected = ({"act": "step"}, {"act": "failed", "why": long})
    assert on_ranks(3, work) == [None, expected, expected]


def test_vectors_of_unlike_lengths_are_collected_and_delivered() -> None:
    def work(link: LocalGroup) -> Any:
        if not link.rank:
            found = link.collect([3, 0, 1], torch.float32)
            link.deliver([t * 10 for t in found])
            return [t.tolist() for t in found]
        mine = torch.full(({1: 3, 2: 0, 3: 1}[link.rank],), float(link.rank))
        link.give(mine)
        return link.receive(len(mine), torch.float32).tolist()

    assert on_ranks(4, work) == [[[1.0, 1.0, 1.0], [], [3.0]], [10.0, 10.0, 10.0], [], [30.0]]


def test_one_vector_goes_to_all_and_is_counted_in_bytes() -> None:
    def work(link: LocalGroup) -> Any:
        if not link.rank:
            link.deliver_same(torch.tensor([7, 8]))
            return [7, 8], link.bytes
        return link.receive_same(2, torch.int64).tolist(), link.bytes

    assert on_ranks(3, work) == [([7, 8], 16)] * 3


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs memfd")
@pytest.mark.parametrize("refuses", [False, True])
def test_memory_is_shared_where_all_ranks_can_have_it(refuses: bool) -> None:
    def work(link: LocalGroup) -> Any:
        if not link.rank:
            memory = link.share(2)
            if memory is not None:
                memory.copy_(torch.tensor([1.0, 2.0]))
            link.order("read")
            link.settled()
            return memory if memory is None else memory.tolist()
        order = link.hear()
        path = "/nowhere" if refuses and link.rank == 2 else order["path"]
        memory = link.attach(path, order["length"])
        assert link.hear() == {"act": "read"}
        if memory is not None:
            memory[link.rank - 1] *= 10
        link.settle()
        return memory is not None

    assert on_ranks(3, work) == [None if refuses else [10.0, 20.0], True, not refuses]


def test_numbers_and_texts_of_all_ranks_are_known_to_all() -> None:
    def work(link: LocalGroup) -> Any:
        return link.together([link.rank, 0.5]), link.texts("é" * link.rank + "!")

    assert on_ranks(3, work) == [([[0.0, 0.5], [1.0, 0.5], [2.0, 0.5]], ["!", "é!", "éé!"])] * 3


def test_a_rank_that_is_gone_is_an_error_that_says_so() -> None:
    store = dist.HashStore()

    def work(link: LocalGroup) -> Any:
        if link.rank:
            return None  # the last reference to its connections goes
        with pytest.raises(PeerLost, match=r"a rank of this worker was lost, .* \(this is rank 0 of 2\)"):
            link.collect([4], torch.float32)
        return link.lost

    assert on_ranks(2, work)[0]
    del store


def test_a_rank_that_is_silent_for_too_long_counts_as_lost() -> None:
    def work(link: LocalGroup) -> Any:
        if not link.rank:
            with pytest.raises(PeerLost):
                link.collect([4], torch.float32)
        return link

    on_ranks(2, work, timeout_s=0.3)


def test_there_is_no_group_before_init_process_group() -> None:
    with pytest.raises(ConfigError, match="call torch.distributed.init_process_group first"):
        process_group("world")


def test_ranks_meet_over_connections_of_their_own(tmp_path: Path) -> None:
    with process_group_alone(tmp_path) as world:
        link = LocalGroup.meet(world, 5.0)
        with pytest.raises(ConfigError, match=r"group=7\): give a process group, such as"):
            process_group(7)
        mesh = dist.device_mesh.init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
        with pytest.raises(
            ConfigError, match=r"a mesh of 2 dimensions \('dp', 'tp'\); give the group of all its ranks"
        ):
            process_group(mesh)
        assert process_group(mesh["dp"]) is mesh["dp"].get_group()
    assert (link.rank, link.size) == (0, 1)
    assert link.together([1.0]) == [[1.0]], "it lives longer than the user's groups"


def test_gloo_listens_on_the_loopback_address_only() -> None:
    assert gloo(dist.HashStore(), 0, 1, 5.0).size() == 1
