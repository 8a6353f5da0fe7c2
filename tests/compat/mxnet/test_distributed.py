"""What MXNet's KVStore promises, sentence by sentence, on stores of several workers and servers."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from paceline.core.errors import ConfigError
from paceline.kvstore import KVStore, create
from tests.compat.mxnet.store_threads import run
from tests.launch.process_tree import within


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_only_the_value_of_rank_0_is_used() -> None:
    def work(kv: KVStore) -> Tensor:
        kv.init("w", torch.full((3,), 1.0 + kv.rank))
        return torch.as_tensor(kv.pull("w"))

    assert [value.tolist() for value in run(work, workers=3)] == [[1.0] * 3] * 3


def test_a_sum_and_never_a_mean_takes_the_place_of_the_value() -> None:
    def work(kv: KVStore) -> Tensor:
        kv.init(["w", "v"], [torch.zeros(3), torch.zeros(2, 2)])
        kv.push(["w", "v"], [torch.full((3,), 1.0 + kv.rank), [torch.ones(2, 2)] * 2])
        return torch.cat([v.flatten() for v in kv.pull(["w", "v"])])

    assert [value.tolist() for value in run(work, workers=3)] == [[6.0] * 7] * 3


@pytest.mark.parametrize(
    ("name", "numbers"), [("sgd", {"lr": 0.1, "momentum": 0.9}), ("adam", {"lr": 0.01}), ("adagrad", {"lr": 0.1})]
)
@pytest.mark.parametrize("bound", [1, 1_000_000])
def test_dist_sync_gives_what_one_process_gives_with_the_summed_gradient(
    name: str, numbers: dict[str, Any], bound: int
) -> None:
    """Whether a key is cut over the servers or whole on one."""

    def work(kv: KVStore) -> Tensor:
        kv.set_optimizer(name, rescale_grad=0.5, **numbers)
        kv.init("w", random(0, 7, 3))
        w = torch.empty(7, 3)
        for step in range(5):
            kv.pushpull("w", random(1 + 2 * step + kv.rank, 7, 3), out=w)
        return w

    alone = create("local")
    alone.set_optimizer(name, rescale_grad=0.5, **numbers)
    alone.init("w", random(0, 7, 3))
    for step in range(5):
        alone.push("w", [random(1 + 2 * step + rank, 7, 3) for rank in range(2)])
    first, second = run(work, bound=bound, servers=3)
    assert torch.equal(first, second)
    torch.testing.assert_close(first, alone.pull("w"))


def test_a_pull_sees_the_pushes_that_the_same_worker_made_before_it() -> None:
    def work(kv: KVStore) -> list[float]:
        kv.set_optimizer("sgd", lr=1.0)
        kv.init("w", torch.zeros(1))
        seen = []
        for _ in range(20):
            kv.push("w", -torch.ones(1))
            seen.append(kv.pull("w").item())
        return seen

    for type in ("dist_sync", "dist_async"):
        for seen in run(work, type):
            assert seen == sorted(seen)
            assert all(value >= count for count, value in enumerate(seen, 1))


def test_dist_async_updates_with_every_push() -> None:
    def work(kv: KVStore) -> float:
        kv.set_optimizer("sgd", lr=1.0)
        kv.init("w", torch.zeros(1))
        for _ in range(10 * (1 + kv.rank)):
            kv.push("w", -torch.ones(1))
        kv.pull("w")  # all pushes of this worker are in it
        kv.barrier()
        return float(kv.pull("w"))

    assert run(work, "dist_async", workers=3) == [60.0] * 3


def test_learning_rate_and_weight_decay_may_differ_from_key_to_key_on_servers_too() -> None:
    def work(kv: KVStore) -> list[float]:
        kv.set_optimizer("sgd", lr=1.0, weight_decay=0.5, lr_mult={2: 0.5}, wd_mult={2: 0.0})
        kv.init([1, 2], [torch.ones(1), torch.ones(1)])
        kv.push([1, 2], [torch.ones(1), torch.ones(1)])
        first = kv.pull([1, 2])
        kv.set_learning_rate(0.5)
        kv.barrier()
        kv.push(2, torch.ones(1))
        return [v.item() for v in [*first, kv.pull(2)]]

    assert run(work) == [[1 - 2.5, 1 - 1.0, 0 - 0.5]] * 2


def test_a_function_of_the_scripts_own_is_refused_where_servers_make_the_updates() -> None:
    def work(kv: KVStore) -> bool:
        with pytest.raises(ConfigError, match="dist_async_device: a function of your own cannot run on the servers"):
            kv._set_updater(lambda key, recv, stored: None)
        kv._barrier()
        return kv.is_capable("optimizer")

    assert run(work, "dist_async_device") == [True, True]


def test_dist_async_refuses_a_push_without_an_optimizer() -> None:
    def work(kv: KVStore) -> None:
        kv.init("w", torch.zeros(1))
        kv.push("w", torch.ones(1))
        with pytest.raises(ConfigError, match="call set_optimizer first"):
            kv.pull("w")

    run(work, "dist_async")


def test_dist_ssync_lets_nobody_pull_who_is_further_ahead_than_the_staleness() -> None:
    behind = threading.Event()

    def work(kv: KVStore) -> bool:
        kv.set_optimizer("sgd", lr=1.0)
        kv.init("w", torch.zeros(1))
        if kv.rank == 1:
            behind.wait(60.0)
            kv.push("w", -torch.ones(1))
            return True
        for _ in range(2):
            kv.push("w", -torch.ones(1))
            kv.pull("w")
        kv.push("w", -torch.ones(1))
        threading.Timer(0.2, behind.set).start()
        return float(kv.pull("w")) == 4.0  # the third push was one too many, until the other worker's came

    assert run(work, "dist_ssync", staleness=2) == [True, True]


def test_dist_gsync_updates_when_a_group_is_complete() -> None:
    def work(kv: KVStore) -> tuple[float, float]:
        kv.set_optimizer("sgd", lr=1.0)
        kv.init("w", torch.zeros(1))
        if kv.rank < 2:
            kv.push("w", -torch.ones(1))
            kv.pull("w")
        kv.barrier()
        first = float(kv.pull("w"))
        kv.barrier()
        if kv.rank == 2:
            kv.push("w", -torch.ones(1))
            kv.pull("w")
        kv.barrier()
        return first, float(kv.pull("w"))

    # The sum of the first group, of which Y is 1; then that of the second over Y = 2, for the update it had not seen.
    assert run(work, "dist_gsync", workers=3, groups=((0, 1), (2,))) == [(2.0, 2.5)] * 3


def test_rows_of_a_sparse_gradient_are_all_that_travels_and_changes() -> None:
    def work(kv: KVStore) -> tuple[Tensor, Tensor, Tensor]:
        kv.set_optimizer("sgd", lr=1.0)
        kv.init("table", torch.zeros(6, 2))
        rows = torch.tensor([[0, 5]]) if kv.rank else torch.tensor([[1, 5]])
        kv.push("table", torch.sparse_coo_tensor(rows, -torch.ones(2, 2), (6, 2), check_invariants=True))
        out = torch.full((6, 2), 9.0)
        kv.row_sparse_pull("table", out, row_ids=torch.tensor([5, 0, 5]))
        return (
            kv.pull("table")[:, 0],
            out[:, 0],
            kv.row_sparse_pull("table", row_ids=torch.tensor([5, 1])).to_dense()[:, 1],
        )

    for bound in (1, 1000):
        for table, out, rows in run(work, bound=bound):
            assert table.tolist() == [1.0, 1.0, 0.0, 0.0, 0.0, 2.0]
            assert out.tolist() == [1.0, 9.0, 9.0, 9.0, 9.0, 2.0]
            assert rows.tolist() == [0.0, 1.0, 0.0, 0.0, 0.0, 2.0]


def test_two_bits_leave_for_later_what_they_do_not_send() -> None:
    def work(kv: KVStore) -> list[list[float]]:
        kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})
        kv.init("w", torch.zeros(3))
        seen = []
        for _ in range(2):
            kv.push("w", torch.tensor([0.3, -0.6, 1.2]))
            seen.append(kv.pull("w").tolist())
        return seen

    assert run(work) == [[[0.0, -1.0, 1.0], [1.0, -1.0, 1.0]]] * 2


@pytest.mark.parametrize("bound", [1, 1_000_000])
def test_two_bits_leave_first_values_alone_and_go_with_an_optimizer_and_with_cut_keys(bound: int) -> None:
    def work(kv: KVStore) -> list[float]:
        kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})
        kv.init(["w", "v"], [torch.zeros(40, 2), torch.ones(3)])
        kv.set_optimizer("sgd", lr=1.0, rescale_grad=-2.0)  # as MXNet's test optimizer: w + 2 g
        seen = [kv.pull("v")[0].item()]
        for g in (0.4, 0.1, 0.2, 0.3):  # the threshold is reached with the second and with the fourth
            kv.push("w", torch.full((40, 2), g))
            value = kv.pull("w")
            assert (value == value[0, 0]).all()
            seen.append(value[0, 0].item())
        return seen

    assert run(work, bound=bound) == [[1.0, 0.0, 2.0, 2.0, 4.0]] * 2


def test_a_sparse_gradient_without_rows_counts_and_a_pull_of_no_rows_gives_none() -> None:
    def work(kv: KVStore) -> tuple[float, int]:
        kv.set_optimizer("sgd", lr=1.0, rescale_grad=-1.0)
        kv.init("table", torch.ones(4, 2, dtype=torch.float16))
        none = torch.sparse_coo_tensor(
            torch.empty(1, 0, dtype=torch.int64), torch.empty(0, 2), (4, 2), check_invariants=True
        )
        kv.push("table", none if kv.rank else torch.ones(4, 2))
        rows = torch.ones(4, 2, dtype=torch.float16).to_sparse(1)
        kv.row_sparse_pull("table", rows, row_ids=torch.tensor([]))
        return kv.pull("table").float().mean().item(), rows.coalesce().values().numel()

    assert run(work) == [(2.0, 0)] * 2


def test_a_worker_that_is_lost_is_counted_and_waited_for_no_longer() -> None:
    def work(kv: Any) -> tuple[int, float]:
        kv.init("w", torch.zeros(1))
        if kv.rank == 2:
            kv._session.close()  # as a process that is killed
            raise KeyboardInterrupt
        kv.pushpull("w", value := torch.ones(1))
        within(60.0, lambda: kv.num_dead_nodes > 0)  # the servers may have heard of it before this worker
        return kv.num_dead_nodes, float(value)

    def incarnation(kv: Any) -> Any:
        try:
            return work(kv)
        except KeyboardInterrupt:
            kv._asking.closed = True
            return None

    assert run(incarnation, workers=3) == [(1, 2.0), (1, 2.0), None]
