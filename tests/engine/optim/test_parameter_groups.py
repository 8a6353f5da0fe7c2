"""The vector of a model whose optimizer has several parameter groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.model.trainable import trained_of
from paceline.engine.optim.optimizers import make_rule
from paceline.engine.optim.recipe import recipe_of
from tests.engine.optim.grouped import by_rate, decayed_and_not
from tests.engine.optim.kept_rules import assert_goes_on
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
    assert_goes_on(recipe, sum(group.length for group in recipe.groups), slice(7, 43), unused=(10, 15))


def test_lazy_updates_are_refused_with_the_way_out() -> None:
    model = toy_model()
    optimizer = by_rate(model.parameters())
    recipe = dataclasses.replace(recipe_of(optimizer, trained_of(model, optimizer)), lazy=True)
    with pytest.raises(ConfigError, match="one parameter group: leave lazy out"):
        make_rule(recipe)
