"""What of a module is trained, what is the rest, and what is refused before anything starts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.engine.model.trainable import Rest, digest, same, trained_of


def network() -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 2, bias=False))
    module[0].bias.requires_grad_(False)
    return module


def test_trained_is_what_requires_a_gradient_and_is_in_the_optimizer() -> None:
    module = network()
    assert list(trained_of(module)) == ["0.weight", "1.weight", "1.bias", "2.weight"]
    optimizer = torch.optim.SGD([*module[0].parameters(), module[2].weight], lr=0.1)
    assert list(trained_of(module, optimizer)) == ["0.weight", "2.weight"]


def test_the_rest_comes_over_bit_by_bit_whatever_its_type() -> None:
    def made(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        module = network()
        module.register_buffer("flags", torch.rand(5) > 0.5)
        module.register_buffer("waves", torch.randn(3, dtype=torch.complex64))
        module.register_buffer("nothing", torch.zeros(0))
        module.register_parameter("low", nn.Parameter(torch.randn(3).bfloat16(), requires_grad=False))
        module[1].running_mean.normal_()
        module[1].running_var[0] = float("nan")
        return module

    one, other = made(1), made(2)
    mine, yours = Rest(one, trained_of(one)), Rest(other, trained_of(other))
    assert mine.fingerprint() == yours.fingerprint()
    assert not same(digest(mine.show()), digest(yours.show()))
    yours.load(mine.show())
    assert same(mine.show(), yours.show())
    assert same(digest(mine.show()), digest(yours.show()))
    for name, t in other.state_dict().items():
        if name not in trained_of(one):
            assert torch.equal(t.nan_to_num(), one.state_dict()[name].nan_to_num()), name
    assert not torch.equal(one[0].weight, other[0].weight)
    assert Rest(nn.Linear(2, 2), {}).fingerprint() != mine.fingerprint()
    with pytest.raises(ValueError, match="for 24 bytes of untrained parameters and buffers"):
        Rest(nn.Linear(2, 2), {}).load(mine.show())


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
