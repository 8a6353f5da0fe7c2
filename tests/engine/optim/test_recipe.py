"""Recipes of optimizers are read off torch's, and what is none is refused."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from paceline.core.errors import ConfigError
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.optim.optimizers import LocalOptimizer, make_rule
from paceline.engine.optim.recipe import recipe_of
from paceline.engine.specs import OptimizerRecipe
from tests.engine.optim.recipes import network, torch_optimizer


def test_a_recipe_is_read_off_an_optimizer(recipe: OptimizerRecipe) -> None:
    read = recipe_of(torch_optimizer(network(), recipe))
    assert read == dataclasses.replace(recipe, clip_norm=0.0), "clipping is no part of an optimizer of torch"


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda m: torch.optim.RMSprop(m.parameters()), "torch.optim:RMSprop"),
        (lambda m: torch.optim.Adam(m.parameters(), amsgrad=True), "torch.optim:Adam"),
        (lambda m: torch.optim.SGD(m.parameters(), lr=0.1, maximize=True), "torch.optim:SGD"),
        (lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, dampening=0.5), "torch.optim:SGD"),
    ],
    ids=["kind", "amsgrad", "maximize", "dampening"],
)
def test_torchs_other_optimizers_are_read_off_by_their_import_path(make: object, path: str) -> None:
    recipe = recipe_of(make(network()))  # type: ignore[operator]
    assert recipe.by_path is not None
    assert recipe.by_path.path == path


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (OptimizerRecipe(name="lion"), "lion"),
        (OptimizerRecipe(lr=-1.0), "optimizer.lr = -1.0: must be 0 or more"),
        (OptimizerRecipe(nesterov=True), "needs a momentum"),
        (OptimizerRecipe(name="adam", momentum=0.9), "beta1"),
        (OptimizerRecipe(name="adam", beta1=1.5), "beta"),
        (OptimizerRecipe(name="lars", nesterov=True, momentum=0.9), "nesterov"),
        (OptimizerRecipe(name="lamb", beta2=1.5), "beta"),
        (OptimizerRecipe(name="lamb", momentum=0.9), "beta1"),
    ],
)
def test_what_is_no_optimizer_is_refused(bad: OptimizerRecipe, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_rule(bad)
    with pytest.raises(ConfigError, match=words):
        LocalOptimizer(FlatModel(network()), bad)
