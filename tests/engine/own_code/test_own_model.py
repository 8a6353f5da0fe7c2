"""Networks of the user's own: made by what an import path names, tried on the data before anything is trained."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paceline.core.errors import ConfigError
from paceline.engine.own_code.own_model import build, check

SAMPLES = torch.randn(2, 4)


class Net(nn.Module):
    def __init__(self, outputs: int = 3) -> None:
        super().__init__()
        self.normed = nn.BatchNorm1d(4).eval()
        self.last = nn.LazyLinear(outputs)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.normed(x))
        return out


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., nn.Module]:
    def built(target: Any, seed: int = 1) -> nn.Module:
        module = ModuleType("users_model")
        module.make = target  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "users_model", module)
        return build("users_model:make", SAMPLES, 3, seed)

    return built


def weights(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


@pytest.mark.parametrize("target", [Net, lambda: Net(3), lambda **more: Net(**more)])
def test_a_class_and_a_function_make_the_same_weights_in_every_process(builds: Any, target: Any) -> None:
    first = builds(target)
    torch.rand(7)
    assert torch.equal(weights(builds(target)), weights(first))
    assert not torch.equal(weights(builds(target, seed=2)), weights(first))


def test_the_trial_makes_lazy_layers_and_changes_nothing_else(builds: Any) -> None:
    before = torch.random.get_rng_state()
    net = builds(Net)
    assert net.last.weight.shape == (3, 4)
    assert (net.training, net.normed.training, int(net.normed.num_batches_tracked)) == (True, False, 0)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (lambda: 3, "returned a int, not a torch.nn.Module: let it return the model"),
        (lambda: None, "returned nothing, not a torch.nn.Module"),
        (lambda width: Net(width), r"needs arguments \(width\)"),
        (lambda: Net(2), r"returns \[2, 2\] for 2 samples: let forward return \[2, 3\], a score for each class"),
        (lambda: nn.LSTM(4, 3), "returns a tuple of 2 for 2 samples"),
        (lambda: nn.Linear(5, 3), r"on samples of torch.float32 \[4\]: RuntimeError: mat1 and mat2"),
        (lambda: nn.Linear(4, 3).double(), r"parameter weight is torch.float64.*: call model.float\(\)"),
        (lambda: nn.Linear(4, 3).requires_grad_(False), "the model has no parameters to train"),
        (nn.Linear(4, 3), "is a module that is made already.*name its class, Linear, or a function"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_the_way_out(builds: Any, target: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=f"--model users_model:make.*{words}") as raised:
        builds(target)
    assert "\n" not in str(raised.value)


def test_a_check_imports_and_makes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("users_model")
    module.make = lambda: pytest.fail("made")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "users_model", module)
    check("users_model:make")
    with pytest.raises(ConfigError, match="has no function nothing"):
        check("users_model:nothing")
