"""Builds the networks that a run can name; one file a family. Each maps float32 [n, c, h, w] to logits [n, classes].

`lstm` reads tokens, int64 [n, t], too; `gpt` reads nothing else. Read `lenet.py` first. Of `engine/` it may import
nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, nn

from paceline.core.errors import ConfigError
from paceline.core.registry import nearest
from paceline.engine.models import zoo
from paceline.engine.models.caffe_cifar import STDS, cifar10_full, cifar10_quick, draw_caffe_weights
from paceline.engine.models.cnn import cnn
from paceline.engine.models.gpt import gpt
from paceline.engine.models.lenet import lenet
from paceline.engine.models.lstm import lstm, lstm_of_tokens
from paceline.engine.models.mlp import mlp
from paceline.engine.models.resnet import resnet18
from paceline.engine.specs import LANGUAGE_MODEL, TOKEN_MODELS, ModelRecipe
from paceline.engine.torch_generator import seeded

__all__ = ["SMALL", "TOKEN_MODELS", "build", "build_for_tokens"]

Builder = Callable[[tuple[int, int, int], int, float], nn.Module]
_BUILDERS: dict[str, Builder] = {
    "mlp": mlp,
    "lenet": lenet,
    "cnn": cnn,
    "resnet18": resnet18,
    "cifar10-quick": cifar10_quick,
    "cifar10-full": cifar10_full,
    "lstm": lstm,
}
SMALL = tuple(_BUILDERS)
"""The networks that are written here."""
LARGE_SIDE = 64
"""From this side on pictures count as large: `resnet18` is then the network for ImageNet."""


def build(recipe: ModelRecipe, shape: tuple[int, int, int], classes: int, seed: int) -> nn.Module:
    """Returns the network on the CPU, its initial weights decided by `seed`; the global generators are left as they
    were.

    shape: [c, h, w] of one sample. Raises ConfigError for an unknown name, a width that is not positive, a dropout that
    is not below 1, an empty shape, pictures that are too small for the network, or a library that is missing.
    """
    _check(recipe)
    if recipe.name == LANGUAGE_MODEL:
        raise ConfigError(f"model {recipe.name} reads tokens: give --data text")
    if min(*shape, classes) < 1:
        raise ConfigError(f"a model for samples of {list(shape)} and {classes} classes: each must be 1 or more")
    with seeded(seed):
        if recipe.name in zoo.NETWORKS and (recipe.name not in _BUILDERS or min(shape[1:]) >= LARGE_SIDE):
            model = zoo.build(recipe.name, shape, classes, recipe.width)
        else:
            model = _BUILDERS[recipe.name](shape, classes, recipe.width)
            if recipe.pixels and recipe.name in STDS:
                draw_caffe_weights(model, recipe.name)
    if recipe.dropout:
        _drop(model, recipe.dropout)
    return model


GPT_WIDTH, GPT_DEPTH, GPT_HEADS = 64, 2, 4
"""The sizes of `gpt` with the usual width and depth: 119,000 parameters with bytes as tokens."""


def build_for_tokens(recipe: ModelRecipe, vocabulary: int, classes: int, context: int, seed: int) -> nn.Module:
    """Returns the network for samples int [`context`] in 0 .. `vocabulary` - 1, as `build` does. Raises ConfigError.

    `gpt` maps them to logits [n, context, vocabulary], `lstm` to logits [n, classes].
    """
    _check(recipe)
    if recipe.name not in TOKEN_MODELS:
        raise ConfigError(f"model {recipe.name} does not read tokens; there is {', '.join(TOKEN_MODELS)}")
    with seeded(seed):
        if recipe.name == LANGUAGE_MODEL:
            width = GPT_HEADS * max(1, round(GPT_WIDTH * recipe.width / GPT_HEADS))
            model: nn.Module = gpt(vocabulary, width, recipe.depth or GPT_DEPTH, GPT_HEADS, context)
        else:
            model = lstm_of_tokens(vocabulary, classes, recipe.width)
    if recipe.dropout:
        _drop(model, recipe.dropout)
    return model


def _check(recipe: ModelRecipe) -> None:
    known = {*_BUILDERS, *zoo.NETWORKS, *TOKEN_MODELS}
    if recipe.name not in known:
        raise ConfigError(f"unknown model {recipe.name!r}{nearest(recipe.name, known)}")
    if not (math.isfinite(recipe.width) and recipe.width > 0):
        raise ConfigError(f"model width {recipe.width}: must be positive")
    if not 0 <= recipe.dropout < 1:
        raise ConfigError(f"model dropout {recipe.dropout}: must be 0 or more and below 1")


def _drop(model: nn.Module, part: float) -> None:
    """Adds dropout in front of the last linear layer, by a hook, so that the names of the weights stay as they are."""

    def dropped(layer: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return nn.functional.dropout(given[0], part, layer.training), *given[1:]

    last = [layer for layer in model.modules() if isinstance(layer, nn.Linear)][-1]
    last.register_forward_pre_hook(dropped)
