"""Recipes of data and optimizers: each is loaded once, and a wrong name gets the nearest one."""

from __future__ import annotations

import pytest

from paceline.core.errors import ConfigError
from paceline.engine.data import load, mnist
from paceline.engine.specs import DATASETS, DataRecipe


def test_a_recipe_is_loaded_once() -> None:
    assert load(DataRecipe(name="synthetic", samples=50)) is load(DataRecipe(name="synthetic", samples=50))


def test_an_unknown_data_set_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'mnist'"):
        load(DataRecipe(name="mnits"))


def test_every_named_data_set_is_known() -> None:
    assert set(mnist.SOURCES) < set(DATASETS)
