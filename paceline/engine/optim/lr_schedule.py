"""Computes the learning rate's factor from the training samples seen by all workers together."""

from __future__ import annotations

import math

from paceline.core.errors import ConfigError
from paceline.engine.specs import SCHEDULES, ScheduleRecipe


def check(recipe: ScheduleRecipe) -> None:
    """Raises ConfigError when `recipe` describes no schedule."""
    if recipe.name not in SCHEDULES:
        raise ConfigError(f"schedule.name = {recipe.name!r}: must be one of {', '.join(SCHEDULES)}")
    if recipe.warmup < 0:
        raise ConfigError(f"schedule.warmup = {recipe.warmup}: must be 0 or more samples")
    if recipe.name == "step":
        if recipe.every <= 0:
            raise ConfigError(f"schedule.every = {recipe.every}: a step schedule needs a positive number of samples")
        if not (math.isfinite(recipe.factor) and recipe.factor > 0):
            raise ConfigError(f"schedule.factor = {recipe.factor}: must be positive")
    if recipe.name == "cosine":
        if recipe.total <= recipe.warmup:
            reason = f"a cosine schedule must end after its warm-up of {recipe.warmup} samples"
            raise ConfigError(f"schedule.total = {recipe.total}: {reason}")
        if not 0 <= recipe.floor <= 1:
            raise ConfigError(f"schedule.floor = {recipe.floor}: must lie between 0 and 1")


def factor(recipe: ScheduleRecipe, samples: int) -> float:
    """Returns the factor on the learning rate once `samples` samples have been seen; `recipe` must pass `check`.

    The warm-up comes before the schedule but not instead of its clock: `samples` counts from the very start in both.
    """
    if samples < recipe.warmup:
        return samples / recipe.warmup
    match recipe.name:
        case "step":
            return float(recipe.factor ** (samples // recipe.every))
        case "cosine":
            done = min(1.0, (samples - recipe.warmup) / (recipe.total - recipe.warmup))
            return recipe.floor + (1 - recipe.floor) * (1 + math.cos(math.pi * done)) / 2
        case _:
            return 1.0
