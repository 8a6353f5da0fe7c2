"""Any optimizer of torch as a server's rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn

import paceline
from paceline.core.errors import ConfigError
from paceline.engine.model.trainable import trained_of
from paceline.engine.optim.recipe import recipe_of
from paceline.engine.optim.whole_tensors import PathRule
from paceline.engine.vectors.flat import Flat
from tests.engine.optim.kept_rules import assert_goes_on
from tests.runtime import own_optimizers
from tests.runtime.own_loops import toy_model
from tests.runtime.own_optimizers import OF_TORCH

Make = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("os:system", "os is part of Python, and makes no optimizers"),
        ("no_such_module:make", "cannot be imported: No module named 'no_such_module'; have it on every host's path"),
        ("tests.runtime.own_optimizers:nothing", "has no function nothing"),
        ("tests.runtime.own_optimizers:no_optimizer", "made a int, not a torch.optim.Optimizer"),
        ("adam", "must be module:function, such as my_optimizers:make"),
        (own_optimizers.Lion, None),
    ],
)
def test_what_makes_no_optimizer_is_refused_with_the_way_out(given: Any, words: str | None) -> None:
    model = toy_model()
    if words is None:  # an object: servers cannot know what made it
        given, words = given(model.parameters()), r'asp: servers cannot make the steps of .*Lion: name .*optimizer="'
    with pytest.raises(ConfigError, match=words):
        paceline.join(model, given, scheme="asp")


@pytest.mark.parametrize("kind", [*OF_TORCH, "lion", "muon-like"])
def test_a_rule_goes_on_where_another_was_kept(kind: str) -> None:
    model = toy_model()
    own = {"lion": "lion", "muon-like": "muon_like"}.get(kind)
    path = f"tests.runtime.own_optimizers:{own}" if own else ""
    optimizer = (
        getattr(own_optimizers, own)(list(model.named_parameters())) if own else OF_TORCH[kind](model.parameters())
    )
    trained = trained_of(model, optimizer)
    recipe = recipe_of(optimizer, trained, path)
    sizes = [p.numel() for p in trained.values()]
    part = slice(sizes[0], sum(sizes))  # of a server that has not the first tensor
    assert_goes_on(recipe, sum(sizes), part, unused=(part.start, part.start + sizes[1]))


def test_what_it_counts_in_its_groups_goes_on_when_a_rate_changes_and_where_it_was_kept() -> None:
    model = toy_model()
    optimizer = own_optimizers.schedule_free(list(model.named_parameters()))
    path = "tests.runtime.own_optimizers:schedule_free"
    recipe = recipe_of(optimizer, trained_of(model, optimizer), path)
    assert recipe.by_path is not None
    w = Flat(torch.zeros(sum(p.numel() for p in model.parameters())))
    rule, slower = PathRule(recipe), {**recipe.by_path.groups[0], "lr": 0.01}
    for _ in range(3):
        rule.apply(w, w, 1.0)
    rule.follow(dataclasses.replace(recipe, by_path=dataclasses.replace(recipe.by_path, groups=(slower,))))
    rule.apply(w, w, 1.0)
    state = rule.state()
    assert state["group 0/k/int"] == 4.0
    other = PathRule(recipe)
    other.load_state(state)
    other.apply(w, w, 1.0)
    assert other.state()["group 0/k/int"] == 5.0
