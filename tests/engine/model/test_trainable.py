"""What of a module is trained, what is the rest, and what is refused before anything starts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.engine.model.trainable import Rest, trained_of


def network() -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 2, bias=False))
    module[0].bias.requires_grad_(False)
    return module


def test_trained_is_what_requires_a_gradient_and_is_in_the_optimizer() -> None:
    module = network()
    assert list(trained_of(module)) == ["0.weight", "1.weight", "1.bias", "2.weight"]
    optimizer = torch.optim.SGD([*module[0].parameters(), module[2].weight], lr=0.1)
    assert list(trained_of(module, optimizer)) == ["0.weight", "2.weight"]


def test_the_rest_is_named_part_by_part_and_what_cannot_be_read_stays() -> None:
    module = network()
    module.register_buffer("graph", torch.eye(3).to_sparse())
    module.register_buffer("later", torch.zeros(3, device="meta"))
    rest = Rest(module, trained_of(module))
    assert [name for name, _, _ in rest.layout()] == [
        "0.bias",
        "graph.indices",
        "graph.values",
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
    ]
    assert rest.kept == ["later"]
    assert (
        rest.fingerprint() == Rest(module, trained_of(module)).fingerprint() != Rest(nn.Linear(2, 2), {}).fingerprint()
    )


def test_a_part_gets_the_shape_that_it_has_elsewhere_but_for_one_that_shares_memory() -> None:
    module = nn.Linear(2, 2)
    module.register_buffer("found", torch.zeros(0))
    module.register_buffer("shared", torch.zeros(1).expand(4))
    rest = Rest(module, trained_of(module))
    found, shared = rest.parts
    rest.load(found, [3], [(0, torch.tensor([1.0, 2.0, 3.0]).view(torch.uint8))])
    assert module.get_buffer("found").tolist() == [1.0, 2.0, 3.0]
    rest.load(shared, [1], [(0, torch.tensor([7.0]).view(torch.uint8))])
    assert module.get_buffer("shared").tolist() == [7.0] * 4
    with pytest.raises(ValueError, match=r"shared of shape \(2,\) for \(1,\)"):
        rest.load(shared, [2], [])


def _expanded() -> nn.Module:
    module = nn.Linear(2, 2)
    module.bias = nn.Parameter(torch.zeros(1).expand(2))
    return module


def _overlapping() -> nn.Module:
    module, both = nn.Linear(2, 2), torch.zeros(6)
    module.weight, module.bias = nn.Parameter(both[:4].view(2, 2)), nn.Parameter(both[3:5])
    return module


def _complex() -> nn.Module:
    module = nn.Linear(2, 2)
    module.register_parameter("w", nn.Parameter(torch.zeros(2, dtype=torch.complex64)))
    return module


class DistributedDataParallel(nn.Module):  # torch's own asks for a process group
    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (_expanded, "bias is expanded.*clone"),
        (_overlapping, "bias shares memory with weight"),
        (_complex, "w is torch.complex64.*view_as_real"),
        (lambda: nn.Sequential(nn.Linear(2, 2), DistributedDataParallel()), "DistributedDataParallel.*ddp.module"),
        (lambda: nn.Linear(2, 2, device="meta"), "device meta"),
        (lambda: nn.Linear(2, 2).requires_grad_(False), "no parameters to train"),
        (lambda: nn.Linear(2, 2).double(), r"float64, and weights are exchanged as float32: call model\.float\(\)"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_the_way_out(made: Callable[[], nn.Module], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        trained_of(made())
    assert "\n" not in str(refused.value)


def test_an_optimizer_with_parameters_of_something_else_is_refused() -> None:
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    with pytest.raises(ConfigError, match="holds a parameter that is not in the model"):
        trained_of(model, torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1))


SHARDED = """
import torch
from torch import nn
from torch.distributed.tensor import DeviceMesh, DTensor, Shard

from paceline.core.errors import ConfigError
from paceline.engine.model.trainable import trained_of

torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
model, mesh = nn.Linear(2, 2), DeviceMesh("cpu", [0])
model.weight = nn.Parameter(DTensor.from_local(model.weight.data, mesh, [Shard(0)]))
try:
    trained_of(model)
except ConfigError as refused:
    print(refused)
torch.distributed.destroy_process_group()
"""


def test_a_sharded_parameter_is_refused() -> None:
    # In a process of its own: a process that had a gloo group makes later forks of a DataLoader crash.
    answer = subprocess.run([sys.executable, "-c", SHARDED], capture_output=True, text=True, timeout=120)
    assert "weight is a DTensor" in answer.stdout, answer.stderr


def test_frozen_parameters_may_be_of_any_type_and_shape() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).half().requires_grad_(False))
    module[1].bias = nn.Parameter(torch.zeros(1).expand(2), requires_grad=False)
    assert list(trained_of(module)) == ["0.weight", "0.bias"]


def test_parameters_that_do_not_lie_in_one_piece_are_trained_like_others() -> None:
    module = nn.Linear(3, 2)
    module.weight = nn.Parameter(torch.randn(3, 2).t())
    assert list(trained_of(module)) == ["weight", "bias"]
