"""Parameter groups: a run ends as the plain loop ends, and two workers as one process with the union of their batches.

The model has frozen parts, a layer outside the optimizer, one that is never used and one only now and then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.model.trainable import trained_of
from paceline.engine.optim.lars_lamb import LAMB
from paceline.engine.optim.optimizers import make_rule
from paceline.engine.optim.recipe import recipe_of
from paceline.engine.vectors.flat import Flat
from paceline.runtime.checkpointing.slice_capture import load_rule, state_of_rule
from paceline.runtime.worker.pace import Pace
from paceline.runtime.worker.steps.lr_watch import LrWatcher, heard, median_of, rate_of
from tests.runtime.own_loops import plain_steps, run_loops, toy_data, toy_model
from tests.runtime.runs.test_schedulers import batches, noted
from tests.runtime.runs.test_schedulers import plain as plain_with_scheduler
from tests.runtime.runs.test_trained_and_rest import BATCH, assert_same, held, model_for, plain, union_of_batches

Make = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def decayed_and_not(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """nanoGPT's two groups: matrices with weight decay, vectors without; here with a rate of their own, too."""
    every = list(parameters)
    matrices, vectors = [p for p in every if p.dim() >= 2], [p for p in every if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.5}, {"params": vectors, "weight_decay": 0.0, "lr": 0.05}]
    return torch.optim.AdamW(groups, lr=0.02, betas=(0.9, 0.95))


def by_rate(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Interleaved: the groups' parameters lie all over the model."""
    every = list(parameters)
    groups: list[dict[str, Any]] = [
        {"params": every[::3], "lr": 0.05, "momentum": 0.9},
        {"params": every[1::3], "momentum": 0.5, "nesterov": True, "weight_decay": 0.1},
        {"params": every[2::3]},
    ]
    return torch.optim.SGD(groups, lr=0.1)


def layer_wise(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    every = list(parameters)
    return LAMB([{"params": every[::2], "weight_decay": 0.1}, {"params": every[1::2], "lr": 0.005}], lr=0.02)


def loop(pace: Pace, model: nn.Module) -> None:
    plain_steps(pace, model, toy_data(), batch_size=BATCH, epochs=2)


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("scheme", ["asp", "bsp", "esync"])
@pytest.mark.parametrize("make", [decayed_and_not, by_rate, layer_wise])
def test_one_worker_trains_what_torch_would(make: Make, scheme: str, servers: int, tmp_path: Path) -> None:
    _, models = run_loops(
        tmp_path, scheme, loop, workers=1, servers=servers, make_model=model_for, optimizer=make, held=held
    )
    assert_same(models[0], plain(make))


@pytest.mark.parametrize("make", [decayed_and_not, by_rate])
def test_so_it_does_with_slices_that_leave_early(make: Make, tmp_path: Path) -> None:
    cluster = {"slice_mb": 0.00005, "overlap": "on"}
    more: dict[str, Any] = {"make_model": model_for, "optimizer": make, "held": held}
    _, models = run_loops(tmp_path, "asp", loop, workers=1, servers=2, cluster=cluster, sockets=True, **more)
    assert_same(models[0], plain(make))


@pytest.mark.parametrize("servers", [0, 1, 3])
@pytest.mark.parametrize("make", [decayed_and_not, by_rate])
def test_two_workers_train_what_one_process_with_both_batches_would(make: Make, servers: int, tmp_path: Path) -> None:
    _, models = run_loops(
        tmp_path, "bsp", loop, workers=2, servers=servers, make_model=model_for, optimizer=make, held=held
    )
    for model in models.values():
        assert_same(model, union_of_batches(make, 2), buffers=False)


class ByHand:
    """Each group goes its own way, as with a LambdaLR of several functions."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._groups = optimizer.param_groups

    def step(self) -> None:
        for number, group in enumerate(self._groups):
            group["lr"] *= 0.9 - 0.2 * number
            group["weight_decay"] *= 1.0 + 0.1 * number


@pytest.mark.parametrize("servers", [0, 2])
@pytest.mark.parametrize("make", [decayed_and_not, by_rate])
def test_what_a_scheduler_changes_in_each_group_is_followed(make: Make, servers: int, tmp_path: Path) -> None:
    def with_scheduler(pace: Pace, model: nn.Module) -> None:
        scheduler = ByHand(_made[0])
        for x, y in batches(0):
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step(len(y))
            scheduler.step()

    _made: list[torch.optim.Optimizer] = []

    def made(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        _made.append(make(parameters))
        return _made[0]

    scheme = "asp" if servers else "bsp"
    _, models = run_loops(tmp_path, scheme, with_scheduler, workers=1, servers=servers, optimizer=noted(made))
    for mine, wanted in zip(models[0].parameters(), plain_with_scheduler(make, ByHand).parameters(), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-5, atol=1e-6)


# ---- what it rests on --------------------------------------------------------------------------------------------
def test_the_vector_has_one_group_after_the_other() -> None:
    model = toy_model()
    names = [name for name, _ in model.named_parameters()]
    optimizer = decayed_and_not(model.parameters())
    wanted = [name for name in names if name.endswith("weight")] + [name for name in names if name.endswith("bias")]
    assert [name for name, _ in FlatModel(model, optimizer=optimizer).layout()] == wanted
    recipe = recipe_of(optimizer, trained_of(model, optimizer))
    assert [group.length for group in recipe.groups] == [6 * 5 + 5 * 2, 5 + 2]
    assert [group.optimizer.weight_decay for group in recipe.groups] == [0.5, 0.0]


@pytest.mark.parametrize("make", [decayed_and_not, by_rate])
def test_a_rule_goes_on_where_another_was_kept(make: Make) -> None:
    model = toy_model()
    optimizer = make(model.parameters())
    recipe = recipe_of(optimizer, trained_of(model, optimizer))
    length, part = sum(group.length for group in recipe.groups), slice(7, 43)
    gradients = [Flat.copy_of(torch.randn(length, generator=torch.Generator().manual_seed(k))) for k in range(6)]

    def run(rule: Any, w: Flat, steps: Iterable[int]) -> Flat:
        for k in steps:  # not all of it is used, so that the pieces have made different numbers of steps
            w = rule(w, gradients[k][part], 1, ((10, 15),) if k == 1 else ())
        return w

    def made() -> Any:
        rule = make_rule(recipe)
        rule.start = part.start
        return rule

    first, again = made(), made()
    w = run(first, Flat.copy_of(torch.ones(length))[part], range(3))
    numbers, vectors = state_of_rule(first, len(w))
    load_rule(again, numbers, {name: v.value() for name, v in vectors.items()})
    assert torch.equal(run(again, w, range(3, 6)).value(), run(first, w, range(3, 6)).value())


def test_numbers_of_groups_arrive_as_they_were_told() -> None:
    model = toy_model()
    optimizer = by_rate(model.parameters())
    recipe = recipe_of(optimizer, trained_of(model, optimizer))
    followed = LrWatcher(optimizer, recipe)
    assert followed.changed() is None
    optimizer.param_groups[1]["lr"] = 0.03125
    changed = followed.changed()
    assert changed is not None
    assert followed.changed() is None
    assert heard(recipe, rate_of(changed)) == changed
    assert changed.groups[1].optimizer.lr == 0.03125
    assert median_of([recipe, changed, changed]) == changed
    one = recipe_of(torch.optim.SGD(model.parameters(), lr=0.1))
    assert heard(one, rate_of(changed)) == one, "of another optimizer"


def test_lazy_updates_are_refused_with_the_way_out() -> None:
    model = toy_model()
    optimizer = by_rate(model.parameters())
    recipe = dataclasses.replace(recipe_of(optimizer, trained_of(model, optimizer)), lazy=True)
    with pytest.raises(ConfigError, match="one parameter group: leave lazy out"):
        make_rule(recipe)
