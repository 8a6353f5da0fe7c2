"""A scheduler of the user's own changes the numbers of an optimizer that only tells the recipe."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import torch

from paceline.core.errors import ConfigError
from paceline.engine.specs import OptimizerRecipe
from paceline.live.protocol.control_messages import Rate

REFUSED = ("amsgrad", "maximize", "dampening", "differentiable")
"""What no recipe can say."""
NUMBERS = tuple(field.name for field in fields(Rate))
"""What of a recipe a scheduler may change."""


class LrWatcher:
    """Notices that somebody has changed the learning rate of `optimizer`, its momentum or another of its numbers."""

    def __init__(self, optimizer: torch.optim.Optimizer | None, recipe: OptimizerRecipe) -> None:
        self._group: dict[str, Any] | None = optimizer.param_groups[0] if optimizer else None
        self._recipe = recipe
        self._last = self._numbers()
        self.changes = 0

    def changed(self) -> OptimizerRecipe | None:
        """The recipe with the new numbers, once. Raises ConfigError for what was changed and cannot be followed."""
        now = self._numbers()
        if now == self._last:
            return None
        self._last = now
        self.changes += 1
        group = self._group
        assert group is not None
        for option in REFUSED:
            if group.get(option):
                raise ConfigError(
                    f"the optimizer's {option} was set to {group[option]} while training: leave it as it was"
                )
        own, betas = self._recipe, group.get("betas", (self._recipe.beta1, self._recipe.beta2))
        self._recipe = replace(
            own,
            lr=float(group["lr"]),
            momentum=float(group.get("momentum", own.momentum)),
            nesterov=bool(group.get("nesterov", own.nesterov)),
            weight_decay=float(group.get("weight_decay", own.weight_decay)),
            beta1=float(betas[0]),
            beta2=float(betas[1]),
            eps=float(group.get("eps", own.eps)),
            trust=float(group.get("trust", own.trust)),
        )
        return self._recipe

    def _numbers(self) -> tuple[Any, ...]:
        group = self._group
        if group is None:
            return ()
        others = ("momentum", "nesterov", "weight_decay", "betas", "eps", "trust", *REFUSED)
        return (float(group["lr"]), *[group.get(name) for name in others])


def rate_of(recipe: OptimizerRecipe) -> Rate:
    """The numbers of `recipe` as a worker tells them to the servers."""
    return Rate(**{name: getattr(recipe, name) for name in NUMBERS})


def heard(recipe: OptimizerRecipe, rate: Rate) -> OptimizerRecipe:
    """`recipe` with the numbers that a worker has told."""
    return replace(recipe, **{name: getattr(rate, name) for name in NUMBERS})


def median_of(recipes: Sequence[OptimizerRecipe]) -> OptimizerRecipe:
    """With each number the median of theirs, so that one of three or more cannot choose any."""
    if all(recipe == recipes[0] for recipe in recipes):
        return recipes[0]
    middle = {name: statistics.median_low([getattr(recipe, name) for recipe in recipes]) for name in NUMBERS}
    return replace(recipes[0], **middle)
