"""Fixtures of this folder."""

from __future__ import annotations

import pytest

from paceline.engine.specs import OptimizerRecipe
from tests.engine.optim.recipes import RECIPES


@pytest.fixture(params=list(RECIPES))
def recipe(request: pytest.FixtureRequest) -> OptimizerRecipe:
    return RECIPES[request.param]
