"""Schemes that cannot update with an optimizer refuse it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from paceline.core.errors import ConfigError
from paceline.engine.optim.recipe import recipe_of
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.who_updates import fitted
from tests.runtime.own_loops import toy_model


@pytest.mark.parametrize(
    ("scheme", "parameters", "clip_norm", "words"),
    [
        ("localsgd", {"memory": "average"}, 0.0, "memory='average' is for plain SGD, Adam and AdamW"),
        ("asp", {}, 1.0, "clip_norm needs the norm of the whole gradient, of which 2 servers have a part each"),
    ],
)
def test_what_a_scheme_cannot_do_with_it_is_refused(
    scheme: str, parameters: dict[str, Any], clip_norm: float, words: str
) -> None:
    recipe = recipe_of(torch.optim.Adadelta(toy_model().parameters()))
    recipe = dataclasses.replace(recipe, clip_norm=clip_norm)
    with pytest.raises(ConfigError, match=words):
        fitted(Recipe(scheme=scheme, parameters=parameters, optimizer=recipe), 2)
