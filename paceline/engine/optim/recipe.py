"""Reads off the user's optimizer, as names and numbers, what it does, so that servers can do the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.engine.model.several_models import SeveralOptimizers, class_of
from paceline.engine.optim.optimizers import KINDS
from paceline.engine.optim.own_optimizer import EVALUATES_AGAIN, evaluates_again, refusal_of
from paceline.engine.optim.whole_tensors import HOW_IT_IS_COMPUTED, TORCH, options_of
from paceline.engine.specs import BY_PATH, MOMENTUM, GroupRecipe, OptimizerRecipe, Option, PathRecipe

BEYOND = ("amsgrad", "maximize", "dampening", "differentiable")
"""Options with which SGD, Adam and AdamW are applied to whole tensors by torch's own class."""
BYTES_MAX = 60_000
"""The most bytes of a recipe, which travels in the header of a message (64 KiB)."""


def recipe_of(
    optimizer: torch.optim.Optimizer, trained: Mapping[str, nn.Parameter] | None = None, path: str = ""
) -> OptimizerRecipe:
    """Returns what `optimizer` does.

    trained: the trained parameters by name, in the order of the model's vector; by default what the optimizer holds.
    path: the import path of the function that made it, for one that is not torch's. Raises ConfigError, with the way
    out, for an optimizer that cannot be driven, or that no message can describe.
    """
    members = tuple(optimizer.members.values()) if isinstance(optimizer, SeveralOptimizers) else (optimizer,)
    for each in members:
        if refused := refusal_of(each):
            raise ConfigError(refused)
        if evaluates_again(each) and len(members) > 1:
            raise ConfigError(
                f"{EVALUATES_AGAIN}: with several models take an optimizer that needs one gradient a step"
            )
    own = list(trained.values()) if trained is not None else _held(optimizer)
    kind = KINDS.get(class_of(optimizer))
    if kind is None or any(group.get(option) for group in optimizer.param_groups for option in BEYOND):
        names = list(trained) if trained is not None else [str(i) for i in range(len(own))]
        recipe = _by_path(optimizer, path, dict(zip(names, own, strict=True)))
    else:
        recipe = _in_groups(optimizer, kind, own)
    if len(msgspec.json.encode(recipe)) > BYTES_MAX:
        raise ConfigError(
            f"the optimizer has {len(optimizer.param_groups)} groups of {len(own)} parameters, more than a message "
            "describes: put parameters with the same numbers into one group"
        )
    return recipe


def _held(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    """Returns the parameters that an optimizer changes."""
    return [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]


def _in_groups(optimizer: torch.optim.Optimizer, kind: str, trained: list[nn.Parameter]) -> OptimizerRecipe:
    """Returns the recipe of a known optimizer; with several groups it has the numbers of each, and how long each is."""
    recipes = [_of_group(kind, group) for group in optimizer.param_groups]
    if len(recipes) == 1:
        return recipes[0]
    wanted = set(trained)
    lengths = [sum(p.numel() for p in group["params"] if p in wanted) for group in optimizer.param_groups]
    groups = zip(lengths, recipes, strict=True)
    return replace(recipes[0], groups=tuple(GroupRecipe(length=n, optimizer=recipe) for n, recipe in groups))


def _of_group(name: str, group: Mapping[str, Any]) -> OptimizerRecipe:
    """Returns the recipe of one parameter group of the optimizer called `name`."""
    lr, weight_decay = float(group["lr"]), float(group["weight_decay"])
    if name in MOMENTUM:
        return OptimizerRecipe(
            name=name,
            lr=lr,
            momentum=float(group["momentum"]),
            nesterov=bool(group.get("nesterov")),
            weight_decay=weight_decay,
            trust=float(group.get("trust", 0.001)),
        )
    if group.get("decoupled_weight_decay"):  # Adam with this option is AdamW by another name
        name = "adamw"
    beta1, beta2 = map(float, group["betas"])
    return OptimizerRecipe(
        name=name, lr=lr, weight_decay=weight_decay, beta1=beta1, beta2=beta2, eps=float(group["eps"])
    )


def _by_path(optimizer: torch.optim.Optimizer, path: str, trained: Mapping[str, nn.Parameter]) -> OptimizerRecipe:
    """Returns the recipe of an optimizer that is torch's or that `path` makes; without either only
    the worker makes steps.
    """
    kind = class_of(optimizer)
    of_torch = getattr(torch.optim, kind.__name__, None) is kind
    groups = optimizer.param_groups
    options = [options_of(kind, group) if of_torch else group for group in groups]
    # Empty parameters have no place in the vector.
    solid = {name: p for name, p in trained.items() if p.numel()}
    told = path or of_torch
    return OptimizerRecipe(
        name=BY_PATH,
        lr=float(groups[0].get("lr", 0.0)),
        by_path=PathRecipe(
            path=f"{TORCH}:{kind.__name__}" if of_torch else path,
            kind=_name_of(optimizer),
            groups=tuple(_options(kind, of) for of in options),
            counts=tuple(_count(group["params"], solid) for group in groups) if told else (),
            names=tuple(solid) if told else (),
            shapes=tuple(tuple(p.shape) for p in solid.values()) if told else (),
        ),
    )


def _name_of(optimizer: torch.optim.Optimizer) -> str:
    """Returns the class of the user's optimizer for an error, of several those of all."""
    kind = class_of(optimizer)
    if kind is SeveralOptimizers:
        members = optimizer.members.items()  # type: ignore[attr-defined]
        return " and ".join(f"{type(member).__qualname__} of {name}" for name, member in members)
    return f"{kind.__module__}.{kind.__qualname__}"


def _count(parameters: list[nn.Parameter], among: Mapping[str, nn.Parameter]) -> int:
    """Returns how many of `parameters` are `among` these."""
    wanted = {id(p) for p in among.values()}
    return sum(id(p) in wanted for p in parameters)


def _options(kind: type, group: Mapping[str, Any]) -> dict[str, Option]:
    """Returns the options of a parameter group that are numbers, texts or None."""
    found: dict[str, Option] = {}
    for name, value in group.items():
        plain = float(value) if isinstance(value, torch.Tensor) and value.numel() == 1 else value
        plain = tuple(plain) if isinstance(plain, list) else plain
        parts = plain if isinstance(plain, tuple) else (plain,)
        simple = all(isinstance(part, bool | int | float) for part in parts) or isinstance(plain, str | None)
        if name not in ("params", *HOW_IT_IS_COMPUTED) and simple:
            found[name] = plain
    return found
