"""Builds the networks that a run can name; one file a family. Each maps float32 [n, c, h, w] to logits [n, classes].

Read `lenet.py` first. Of `engine/` it may import nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, nn

from paceline.core.errors import ConfigError
from paceline.core.registry import nearest
from paceline.engine.models.cnn import cnn
from paceline.engine.models.lenet import lenet
from paceline.engine.models.mlp import mlp
from paceline.engine.models.resnet import resnet18
from paceline.engine.specs import ModelRecipe
from paceline.engine.torch_generator import seeded

__all__ = ["build"]

Builder = Callable[[tuple[int, int, int], int, float], nn.Module]
_BUILDERS: dict[str, Builder] = {"mlp": mlp, "lenet": lenet, "cnn": cnn, "resnet18": resnet18}


def build(recipe: ModelRecipe, shape: tuple[int, int, int], classes: int, seed: int) -> nn.Module:
    """Returns the network on the CPU, its initial weights decided by `seed`; the global generators are left as they
    were.

    shape: [c, h, w] of one sample. Raises ConfigError for an unknown name, a width that is not positive, a dropout that
    is not below 1, or an empty shape.
    """
    if recipe.name not in _BUILDERS:
        raise ConfigError(f"unknown model {recipe.name!r}{nearest(recipe.name, _BUILDERS)}")
    if not (math.isfinite(recipe.width) and recipe.width > 0):
        raise ConfigError(f"model width {recipe.width}: must be positive")
    if not 0 <= recipe.dropout < 1:
        raise ConfigError(f"model dropout {recipe.dropout}: must be 0 or more and below 1")
    if min(*shape, classes) < 1:
        raise ConfigError(f"a model for samples of {list(shape)} and {classes} classes: each must be 1 or more")
    with seeded(seed):
        model = _BUILDERS[recipe.name](shape, classes, recipe.width)
    if recipe.dropout:
        _drop(model, recipe.dropout)
    return model


def _drop(model: nn.Module, part: float) -> None:
    """Adds dropout in front of the last linear layer, by a hook, so that the names of the weights stay as they are."""

    def dropped(layer: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return nn.functional.dropout(given[0], part, layer.training), *given[1:]

    last = [layer for layer in model.modules() if isinstance(layer, nn.Linear)][-1]
    last.register_forward_pre_hook(dropped)
