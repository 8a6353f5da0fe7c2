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


@pytest.mark.parametrize("type", ["local", "device"])
def test_the_tensors_of_several_devices_are_summed_up_and_every_one_gets_the_value(type: str) -> None:
    kv = create(type)
    kv.init(["w", 3], [torch.zeros(2), torch.zeros(1)])
    kv.push(["w", 3], [[torch.ones(2), torch.full((2,), 2.0)], torch.ones(1)])
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
