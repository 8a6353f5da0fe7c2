"""What an optimizer remembers, as one vector and back."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.optim.optimizer_state import OptimizerState
from paceline.engine.optim.optimizers import LocalOptimizer
from paceline.engine.specs import OptimizerRecipe
from paceline.engine.vectors.flat import Flat

MAKERS = {
    "momentum": lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9),
    "nesterov": lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9, nesterov=True),
    "adam": lambda ps: torch.optim.Adam(ps, 0.01),
    "adam-fused": lambda ps: torch.optim.Adam(ps, 0.01, fused=True),
    "adamw": lambda ps: torch.optim.AdamW(ps, 0.01, weight_decay=0.1),
}


def network() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 4))


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        model.zero_grad()
        nn.functional.mse_loss(model(torch.randn(8, 6, generator=generator)), torch.ones(8, 4)).backward()
        optimizer.step()


class Own:
    """A user's optimizer over the parameters of a flattened module."""

    def __init__(self, kind: str) -> None:
        self.module = network()
        self.flat = FlatModel(self.module)
        self.optimizer = MAKERS[kind](self.module.parameters())
        self.memory = OptimizerState(self.optimizer, self.flat.parameters)


@pytest.mark.parametrize("kind", MAKERS)
def test_what_was_shown_and_recalled_goes_on_as_if_it_had_been_kept(kind: str) -> None:
    first, second = Own(kind), Own(kind)
    steps(first.module, first.optimizer, 3)
    steps(second.module, second.optimizer, 1, seed=9)  # it remembers something else
    shown = first.memory.show()
    assert shown is not None
    second.memory.recall(shown)
    second.flat.load(first.flat.weights())
    for own in (first, second):
        steps(own.module, own.optimizer, 3, seed=1)
    assert torch.equal(first.flat.weights().value(), second.flat.weights().value())


@pytest.mark.parametrize("kind", MAKERS)
def test_after_a_reset_it_is_a_fresh_optimizer(kind: str) -> None:
    used, fresh = Own(kind), Own(kind)
    steps(used.module, used.optimizer, 3)
    used.memory.reset()
    used.flat.load(fresh.flat.weights())
    for own in (used, fresh):
        steps(own.module, own.optimizer, 3, seed=1)
    assert torch.equal(used.flat.weights().value(), fresh.flat.weights().value())


@pytest.mark.parametrize("kind", MAKERS)
def test_recalled_state_is_laid_out_as_torch_lays_it_out(kind: str) -> None:
    own = Own(kind)
    steps(own.module, own.optimizer, 2)
    before = copy.deepcopy(own.optimizer.state_dict()["state"])
    shown = own.memory.show()
    assert shown is not None
    own.memory.recall(shown)
    after = own.optimizer.state_dict()["state"]
    for p, names in before.items():
        assert {name: (t.shape, t.dtype, t.device) for name, t in names.items()} == {
            name: (t.shape, t.dtype, t.device) for name, t in after[p].items()
        }
        assert all(torch.equal(t, after[p][name]) for name, t in names.items())


@pytest.mark.parametrize(
    ("kind", "recipe"),
    [("momentum", OptimizerRecipe(lr=0.1, momentum=0.9)), ("adam", OptimizerRecipe(name="adam", lr=0.01))],
)
def test_a_users_optimizer_and_the_flat_one_understand_each_other(kind: str, recipe: OptimizerRecipe) -> None:
    own = Own(kind)
    module = network()
    flat = FlatModel(module)
    local = LocalOptimizer(flat, recipe)
    for seed in range(3):
        steps(own.module, own.optimizer, 1, seed)
        flat.zero_grad()
        x = torch.randn(8, 6, generator=torch.Generator().manual_seed(seed))
        nn.functional.mse_loss(module(x), torch.ones(8, 4)).backward()
        local.step(0)
    one, other = own.memory.show(), local.memory.show()
    assert one is not None
    assert other is not None
    assert len(one) == len(other) == (len(flat) if kind == "momentum" else 2 * len(flat) + 1)
    torch.testing.assert_close(one.value(), other.value())
    local.memory.recall(one)
    own.memory.recall(other)


def test_what_was_shown_does_not_change_when_training_goes_on() -> None:
    own = Own("adam")
    steps(own.module, own.optimizer, 2)
    shown = own.memory.show()
    assert shown is not None
    before = shown.value().clone()
    steps(own.module, own.optimizer, 2)
    own.memory.recall(shown)
    steps(own.module, own.optimizer, 2)
    assert torch.equal(shown.value(), before)


def test_parameters_that_are_not_trained_are_not_in_it() -> None:
    module = network()
    module[0].weight.requires_grad_(False)  # type: ignore[union-attr]
    flat = FlatModel(module)
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], 0.1, momentum=0.9)
    memory = OptimizerState(optimizer, flat.parameters)
    steps(module, optimizer, 2)
    shown = memory.show()
    assert shown is not None
    frozen = module[0].weight.numel()  # type: ignore[union-attr, operator]
    assert len(shown) == sum(p.numel() for p in module.parameters()) - frozen  # type: ignore[operator]
    memory.recall(shown)
    assert module[0].weight not in optimizer.state  # type: ignore[union-attr]


def test_sgd_without_momentum_remembers_nothing() -> None:
    module = network()
    memory = OptimizerState(torch.optim.SGD(module.parameters(), 0.1), list(module.parameters()))
    assert memory.show() is None


def test_an_optimizer_with_a_memory_of_its_own_kind_is_refused_with_the_way_out() -> None:
    module = network()
    memory = OptimizerState(torch.optim.RMSprop(module.parameters()), list(module.parameters()))
    with pytest.raises(ConfigError, match="RMSprop remembers cannot be shown: use SGD, Adam, AdamW, LARS or LAMB"):
        memory.show()


def test_the_memory_of_another_optimizer_is_refused() -> None:
    with pytest.raises(ConfigError, match="a memory of 7 numbers does not fit Adam, which remembers"):
        Own("adam").memory.recall(Flat.wrap(torch.zeros(7)))
