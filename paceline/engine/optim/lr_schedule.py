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
        if recipe.every <= 0 and not recipe.at:
            raise ConfigError(f"schedule.every = {recipe.every}: a step schedule needs a positive number of samples")
        if min(recipe.at, default=0) < 0:
            raise ConfigError(f"schedule.at = {min(recipe.at)}: each must be 0 or more samples")
        if not (math.isfinite(recipe.factor) and recipe.factor > 0):
            raise ConfigError(f"schedule.factor = {recipe.factor}: must be positive")
    if recipe.name in ("cosine", "poly"):
        if recipe.total <= recipe.warmup:
            reason = f"a {recipe.name} schedule must end after its warm-up of {recipe.warmup} samples"
            raise ConfigError(f"schedule.total = {recipe.total}: {reason}")
        if not (math.isfinite(recipe.power) and recipe.power > 0):
            raise ConfigError(f"schedule.power = {recipe.power}: must be positive")
        if not 0 <= recipe.floor <= 1:
            raise ConfigError(f"schedule.floor = {recipe.floor}: must lie between 0 and 1")


def factor(recipe: ScheduleRecipe, samples: int) -> float:
    """Returns the factor on the learning rate once `samples` samples have been seen; `recipe` must pass `check`.

    The warm-up comes before the schedule but not instead of its clock: `samples` counts from the very start in both.
    """
    if samples < recipe.warmup:
        return samples / recipe.warmup
    match recipe.name:
        case "step" if recipe.at:
            return float(recipe.factor ** sum(samples >= reached for reached in recipe.at))
        case "step":
            return float(recipe.factor ** (samples // recipe.every))
        case "cosine":
            return recipe.floor + (1 - recipe.floor) * (1 + math.cos(math.pi * _done(recipe, samples))) / 2
        case "poly":
            return float((1 - _done(recipe, samples)) ** recipe.power)
        case _:
            return 1.0


def _done(recipe: ScheduleRecipe, samples: int) -> float:
    """Returns the part of the schedule after its warm-up that is over, from 0 to 1."""
    return min(1.0, (samples - recipe.warmup) / (recipe.total - recipe.warmup))
