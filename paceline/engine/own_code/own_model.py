"""A network of the user's own, known by its import path: a function or a class that is called without arguments."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from paceline.core.errors import ConfigError
from paceline.engine import import_path
from paceline.engine.model.trainable import trained_of
from paceline.engine.torch_generator import seeded

WHAT = "--model"


def check(path: str) -> None:
    """Imports what `path` names. Raises ConfigError, in one line, where that cannot be."""
    _maker(path)


def build(path: str, samples: Tensor, classes: int, seed: int) -> nn.Module:
    """A new module on the CPU, whose initial weights are decided by `seed`. It is tried on `samples`.

    Raises ConfigError where the function fails or returns something else, or the module does not take the data.
    """
    with seeded(seed):
        module = import_path.call(_maker(path), path, WHAT)
        if not isinstance(module, nn.Module):
            raise ConfigError(
                f"{WHAT} {path}: returned {import_path.kind_of(module)}, not a torch.nn.Module: let it return the model"
            )
        if any(map(is_lazy, module.parameters())):
            _try(module, path, samples, classes)  # which gives them their numbers
            _check_trainable(module, path)
        else:
            _check_trainable(module, path)
            _try(module, path, samples, classes)
    return module


def _check_trainable(module: nn.Module, path: str) -> None:
    """Raises ConfigError for a module that no worker could join with, such as one of float64."""
    try:
        trained_of(module)
    except ConfigError as error:
        raise ConfigError(f"{WHAT} {path}: {error}") from None


def _try(module: nn.Module, path: str, samples: Tensor, classes: int) -> None:
    """One forward pass, which changes nothing but that lazy layers have their weights afterwards."""
    trains = {part: part.training for part in module.modules()}
    try:
        with torch.no_grad():
            scores = module.eval()(samples)
    except Exception as error:
        of = f"{samples.dtype} {list(samples.shape[1:])}"
        raise ConfigError(f"{WHAT} {path}: on samples of {of}: {import_path.described(error)}") from error
    for part, training in trains.items():
        part.training = training
    if not isinstance(scores, Tensor) or scores.dim() != 2 or scores.shape[1] < classes:
        given = list(scores.shape) if isinstance(scores, Tensor) else import_path.kind_of(scores)
        n = len(samples)
        raise ConfigError(
            f"{WHAT} {path}: returns {given} for {n} samples: let forward return [{n}, {classes}], a score for each "
            "class; other losses need a loop of their own, with paceline.join"
        )


def _maker(path: str) -> object:
    target = import_path.own(path, WHAT, makes="models")
    if isinstance(target, nn.Module):
        raise ConfigError(
            f"{WHAT} {path}: is a module that is made already, and each process makes its own: name its class, "
            f"{type(target).__name__}, or a function that returns a new one"
        )
    return target
