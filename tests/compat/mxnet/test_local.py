"""Stores of one process: sums over devices, optimizers, rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paceline.core.errors import ConfigError
from paceline.kvstore import create


@pytest.mark.parametrize(
    "type", ["local", "device", "nccl", "local_update_cpu", "local_allreduce_cpu", "local_allreduce_device"]
)
def test_the_tensors_of_several_devices_are_summed_up_and_every_one_gets_the_value(type: str) -> None:
    kv = create(type)
    kv.init(["w", "v"], [torch.zeros(2), torch.zeros(1)])
    kv.push(["w", "v"], [[torch.ones(2), torch.full((2,), 2.0)], torch.ones(1)])
    out = [torch.empty(2), torch.empty(2)]
    kv.pull("w", out=out)
    assert [each.tolist() for each in out] == [[3.0, 3.0]] * 2
    assert (kv.rank, kv.num_workers, kv.num_dead_nodes, kv.type) == (0, 1, 0, type)


@pytest.mark.parametrize("type", ["local", "device"])
@pytest.mark.parametrize(
    "optimizer",
    [
        lambda w: torch.optim.SGD(w, lr=0.1, momentum=0.9, nesterov=True),
        lambda w: torch.optim.AdamW(w, lr=0.1, betas=(0.8, 0.9)),
        lambda w: torch.optim.RMSprop(w, lr=0.1, centered=True),
    ],
    ids=["SGD", "AdamW", "RMSprop"],
)
def test_an_optimizer_of_torch_does_in_a_store_what_it_does_by_itself(type: str, optimizer: Callable[..., Any]) -> None:
    w = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
    alone, kv = optimizer([w]), create(type)
    kv.set_optimizer(optimizer([nn.Parameter(torch.zeros(1))]))
    kv.init("w", w)
    for step in range(4):
        w.grad = torch.tensor([0.5, -1.0, float(step)])
        kv.push("w", w.grad)
        alone.step()
    torch.testing.assert_close(kv.pull("w"), w.detach())


def test_a_local_store_saves_and_loads_its_optimizer_and_pulls_rows(tmp_path: Path) -> None:
    def work(load: bool, pushes: int) -> Tensor:
        kv = create("local")
        kv.set_optimizer("sgd", lr=1.0, momentum=0.5)
        kv.init("table", torch.zeros(3, 1))
        if load:
            kv.load_optimizer_states(tmp_path / "states")
        for _ in range(pushes):
            kv.push("table", -torch.ones(3, 1))
        kv.save_optimizer_states(tmp_path / "states")
        return torch.as_tensor(kv.row_sparse_pull("table", row_ids=torch.tensor([2, 0, 2])).to_dense()[:, 0])

    assert work(False, 1).tolist() == [1.0, 0.0, 1.0]
    assert work(True, 1).tolist() == [1.5, 0.0, 1.5]  # the momentum of the push before is in it


def test_a_device_store_compresses_what_every_device_sends_and_a_local_one_has_nothing_to_compress() -> None:
    kv = create("device")
    kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    kv.init("w", torch.zeros(2))
    kv.push("w", [torch.tensor([0.3, 0.6]), torch.tensor([0.3, -2.0])])
    assert kv.pull("w").tolist() == [0.0, 0.0]
    kv.push("w", [torch.tensor([0.3, 0.6]), torch.tensor([0.3, 0.0])])
    assert kv.pull("w").tolist() == [1.0, 0.0]  # what each had left of the first push counts
    with pytest.raises(ConfigError, match="local store sends nothing"):
        create("local").set_gradient_compression({"type": "2bit"})


@pytest.mark.parametrize("sparse", [False, True])
def test_an_updater_of_the_scripts_own_gets_key_sum_and_stored_value_and_writes_over_the_latter(sparse: bool) -> None:
    kv, told = create("local"), []

    def updater(key: int | str, recv: Tensor, stored: Tensor) -> None:
        told.append((key, recv.shape))
        stored += 2 * recv

    kv._set_updater(updater)
    kv.init([3, 5], [torch.ones(2, 2), torch.ones(1)])
    gradient = torch.ones(2, 2).to_sparse(1) if sparse else torch.ones(2, 2)
    for _ in range(2):
        kv.push(3, [gradient, gradient])
    assert kv.pull(3).tolist() == [[9.0, 9.0]] * 2
    assert kv.pull(5).tolist() == [1.0]
    assert told == [(3, (2, 2))] * 2
    with pytest.raises(ConfigError, match="takes a function of key, sum and stored value"):
        kv._set_updater("sgd")  # type: ignore[arg-type]
    kv.set_optimizer("sgd", lr=1.0)  # the last that is set is in use
    kv.push(5, torch.ones(1))
    assert kv.pull(5).tolist() == [0.0]


def test_a_key_of_the_other_kind_is_refused_and_a_store_may_have_either() -> None:
    for first, other in ((3, "a"), ("a", 3)):
        kv = create("local")
        kv.init(first, torch.ones(1))
        for act in (
            lambda kv=kv, other=other: kv.init(other, torch.ones(1)),
            lambda kv=kv, other=other: kv.push(other, torch.ones(1)),
            lambda kv=kv, other=other: kv.pull(other),
            lambda kv=kv, other=other: kv.row_sparse_pull(other, row_ids=torch.tensor([0])),
            lambda kv=kv, first=first, other=other: kv.push([first, other], [torch.ones(1)] * 2),
        ):
            with pytest.raises(ConfigError, match=f"key {other!r}: mixed key types"):
                act()
        assert kv.pull(first).tolist() == [1.0]
    with pytest.raises(ConfigError, match="key 'a': mixed key types"):
        create("local").init([3, "a"], [torch.ones(1)] * 2)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_a_pull_leaves_sparse_tensors_alone_unless_it_is_told_not_to() -> None:
    kv = create("device")
    kv.init("w", torch.tensor([[1.0, 1.0], [0.0, 0.0], [3.0, 3.0]]))
    sparse, dense = torch.full((3, 2), 7.0).to_sparse(1), torch.zeros(3, 2)
    kv.pull("w", out=[sparse, dense])
    assert (sparse.to_dense()[:, 0].tolist(), dense[:, 0].tolist()) == ([7.0, 7.0, 7.0], [1.0, 0.0, 3.0])
    kv.pull("w", out=[sparse], ignore_sparse=False)
    assert sparse.to_dense()[:, 0].tolist() == [1.0, 0.0, 3.0]
    assert sparse.coalesce().indices().tolist() == [[0, 2]]
    with pytest.raises(ConfigError, match="give a dense one"):
        kv.pull("w", out=torch.ones(3, 2).to_sparse_csr(), ignore_sparse=False)


def test_learning_rate_and_weight_decay_may_differ_from_key_to_key() -> None:
    kv = create("local")
    kv.set_optimizer("sgd", lr=1.0, wd=0.5, lr_mult={"b": 0.5}, wd_mult={"b": 0.0, "c": 2.0})
    kv.init(["a", "b", "c"], [torch.ones(1)] * 3)
    kv.push(["a", "b", "c"], [torch.ones(1)] * 3)
    assert [v.item() for v in kv.pull(["a", "b", "c"])] == [1 - 1.5, 1 - 0.5, 1 - 2.0]
    kv.set_learning_rate(0.0)
    kv.push(["a", "b"], [torch.ones(1)] * 2)
    assert [v.item() for v in kv.pull(["a", "b"])] == [-0.5, 0.5]
    kv.set_learning_rate(2.0)
    kv.push("b", torch.ones(1))
    assert kv.pull("b").item() == 0.5 - 1.0
