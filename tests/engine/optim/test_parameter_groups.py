"""The vector of a model whose optimizer has several parameter groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.model.trainable import trained_of
from paceline.engine.optim.optimizers import make_rule
from paceline.engine.optim.recipe import recipe_of
from paceline.engine.vectors.flat import Flat
from paceline.runtime.checkpointing.slice_capture import load_rule, state_of_rule
from tests.engine.optim.grouped import by_rate, decayed_and_not
from tests.runtime.own_loops import toy_model

Make = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


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


def test_lazy_updates_are_refused_with_the_way_out() -> None:
    model = toy_model()
    optimizer = by_rate(model.parameters())
    recipe = dataclasses.replace(recipe_of(optimizer, trained_of(model, optimizer)), lazy=True)
    with pytest.raises(ConfigError, match="one parameter group: leave lazy out"):
        make_rule(recipe)
