"""Muon for the matrices inside a network, AdamW for the rest."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.models.gpt import gpt
from paceline.engine.muon import MuonWithAdamW
from paceline.engine.optim.optimizer_state import OptimizerState
from paceline.engine.optim.optimizers import LocalOptimizer, make_rule
from paceline.engine.specs import OptimizerRecipe, ScheduleRecipe
from paceline.engine.vectors.flat import Flat

RECIPE = OptimizerRecipe(name="muon", lr=0.01, weight_decay=0.1, muon_momentum=0.9, beta1=0.8)


def network() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 4))


def backward(module: nn.Module, seed: int) -> None:
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(seed))
    nn.functional.mse_loss(module(x), torch.ones(8, 4)).backward()


def steps(module: nn.Module, optimizer: torch.optim.Optimizer, seeds: range) -> None:
    for seed in seeds:
        optimizer.zero_grad()
        backward(module, seed)
        optimizer.step()


def by_hand(module: nn.Module, lr: float = 0.01) -> list[torch.optim.Optimizer]:
    """torch's two optimizers on `network`."""
    first, second, last = module[0], module[2], module[4]  # type: ignore[index]
    numbers = {"lr": lr, "weight_decay": 0.1}
    muon = torch.optim.Muon([first.weight, second.weight], momentum=0.9, adjust_lr_fn="match_rms_adamw", **numbers)
    others = [first.bias, second.bias, last.weight, last.bias]
    return [muon, torch.optim.AdamW(others, betas=(0.8, 0.999), **numbers)]


def weights(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def in_group(optimizer: torch.optim.Optimizer, number: int, module: nn.Module) -> set[str]:
    held = {id(p) for p in optimizer.param_groups[number]["params"]}
    return {name for name, p in module.named_parameters() if id(p) in held}


def test_matrices_inside_the_network_are_muons_and_all_else_is_adamws() -> None:
    module = network()
    optimizer = MuonWithAdamW(module)
    assert in_group(optimizer, 0, module) == {"0.weight", "2.weight"}
    assert in_group(optimizer, 1, module) == {"0.bias", "2.bias", "4.weight", "4.bias"}


def test_of_a_transformer_embeddings_are_adamws_also_where_they_are_the_output() -> None:
    module = gpt(vocabulary=11, width=8, depth=1, heads=2, context=4)
    muons = in_group(MuonWithAdamW(module), 0, module)
    inside = ("attention.query_key_value", "attention.output", "wide", "narrow")
    assert muons == {f"blocks.0.{name}.weight" for name in inside}


def test_it_makes_the_steps_of_torchs_two_optimizers() -> None:
    one, other = network(), network()
    optimizer = MuonWithAdamW(one, 0.01, momentum=0.9, weight_decay=0.1, betas=(0.8, 0.999))
    both = by_hand(other)
    for seed in range(5):
        steps(one, optimizer, range(seed, seed + 1))
        other.zero_grad()
        backward(other, seed)
        for each in both:
            each.step()
    assert torch.equal(weights(one), weights(other))


def test_local_steps_are_its_steps_at_the_rate_of_the_schedule() -> None:
    schedule = ScheduleRecipe(name="step", every=16, factor=0.5)
    flat, other = FlatModel(network()), network()
    local = LocalOptimizer(flat, RECIPE, schedule)
    both = by_hand(other)
    for seed in range(6):
        flat.zero_grad()
        backward(flat.module, seed)
        local.step(seed * 8)
        other.zero_grad()
        backward(other, seed)
        for each in both:
            each.param_groups[0]["lr"] = 0.01 * 0.5 ** (seed * 8 // 16)
            each.step()
    torch.testing.assert_close(flat.weights().value(), weights(other))


def test_its_memory_is_a_vector_and_what_is_recalled_goes_on() -> None:
    flats = FlatModel(network()), FlatModel(network())
    locals_ = [LocalOptimizer(flat, RECIPE) for flat in flats]

    def go(number: int, seeds: range) -> None:
        for seed in seeds:
            flats[number].zero_grad()
            backward(flats[number].module, seed)
            locals_[number].step(0)

    go(0, range(3))
    go(1, range(9, 10))  # it remembers something else
    shown = locals_[0].memory.show()
    assert shown is not None
    assert len(shown) == 2 * len(flats[0]) + 1
    locals_[1].memory.recall(Flat.copy_of(shown.value()))
    flats[1].load(flats[0].weights())
    go(0, range(3, 6))
    go(1, range(3, 6))
    assert torch.equal(flats[0].weights().value(), flats[1].weights().value())


def test_after_a_reset_it_is_a_fresh_optimizer() -> None:
    used, fresh = network(), network()
    one, other = MuonWithAdamW(used), MuonWithAdamW(fresh)
    steps(used, one, range(3))
    OptimizerState(one, FlatModel(used).parameters).reset()
    used.load_state_dict(fresh.state_dict())
    steps(used, one, range(3, 6))
    steps(fresh, other, range(3, 6))
    assert torch.equal(weights(used), weights(fresh))


def test_a_state_dict_that_is_loaded_goes_on() -> None:
    one = network()
    first = MuonWithAdamW(one)
    steps(one, first, range(3))
    other = copy.deepcopy(one)
    second = MuonWithAdamW(other)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    steps(one, first, range(3, 6))
    steps(other, second, range(3, 6))
    assert torch.equal(weights(one), weights(other))


def test_a_closure_is_called_once_and_its_loss_returned() -> None:
    module = network()
    optimizer = MuonWithAdamW(module)
    losses = []

    def closure() -> float:
        optimizer.zero_grad()
        backward(module, 1)
        losses.append(1.5)
        return 1.5

    assert optimizer.step(closure) == 1.5
    assert losses == [1.5]


def test_what_is_frozen_stays() -> None:
    module = network()
    module[0].weight.requires_grad_(False)  # type: ignore[index]
    optimizer = MuonWithAdamW(module)
    assert in_group(optimizer, 0, module) == {"2.weight"}
    assert "0.weight" not in in_group(optimizer, 1, module)


def test_a_network_without_such_matrices_is_refused() -> None:
    with pytest.raises(ConfigError, match="take adamw"):
        MuonWithAdamW(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2)))


def test_servers_make_no_such_steps() -> None:
    rule = make_rule(RECIPE)
    with pytest.raises(ConfigError, match="makes local steps only"):
        rule(Flat.copy_of(torch.ones(3)), Flat.copy_of(torch.ones(3)), 1)


def test_a_step_is_as_long_as_one_of_adamw() -> None:
    """The root of the mean square of a step is about 0.2 of the learning rate, as AdamW's is (Liu et al. 2025)."""
    module = nn.Sequential(nn.Linear(64, 256, bias=False), nn.Linear(256, 2))
    before = module[0].weight.detach().clone()
    optimizer = MuonWithAdamW(module, 0.01, weight_decay=0.0)
    module(torch.randn(128, 64)).square().mean().backward()
    optimizer.step()
    moved = (module[0].weight.detach() - before).square().mean().sqrt()
    # Of a matrix of rank 2 only two directions move: sqrt(2) of the sqrt(64) that a full one has.
    assert 0.5 < float(moved) / (0.2 * 0.01 * math.sqrt(2 / 64)) < 1.5
