"""Follows a scheduler of the user's own, which changes the numbers of an optimizer that only tells the recipe.

Servers make the steps, so the user's optimizer is never called; its learning rate is all the same what the user's
scheduler changes. Before each step a worker compares the numbers with the last ones, and tells the servers of a
change, which apply it to that worker's contributions (`Shard._follow`).
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import torch

from paceline.core.coordination.control_messages import Rate
from paceline.core.errors import ConfigError
from paceline.core.trace import Decided
from paceline.engine.specs import OptimizerRecipe, Option
from paceline.live.control.session import Session
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.worker.schedules.loop_schedules import LoopSchedule
from paceline.runtime.worker.schedules.sample_schedule import SampleSchedule
from paceline.runtime.worker.sharing.shared_plateau import SharedPlateau

REFUSED = ("amsgrad", "maximize", "dampening", "differentiable")
"""Options that the recipes of SGD, Adam, AdamW, LARS and LAMB cannot express."""
NUMBERS = tuple(field.name for field in fields(Rate) if field.name != "groups")
"""Numbers of a recipe that a scheduler may change."""


MADE_AND_STEPPED = 2
"""Changes by hand after which somebody steps a scheduler by hand."""


class LrWatcher:
    """Notices that somebody has changed the learning rate of `optimizer`, its momentum or another of its numbers."""

    def __init__(self, optimizer: torch.optim.Optimizer | None, recipe: OptimizerRecipe) -> None:
        self._optimizer = optimizer
        self._recipe = recipe
        self._count = len(recipe.by_path.groups if recipe.by_path else recipe.groups) or 1
        self._last = self._numbers()
        self.schedules: list[SampleSchedule | LoopSchedule | SharedPlateau] = []
        self.changes = 0  # by hand

    def changed(self) -> OptimizerRecipe | None:
        """Returns the recipe with the new numbers, once after a change. Raises ConfigError for a change that cannot be
        followed."""
        for schedule in self.schedules:
            schedule.follow()
        now = self._numbers()
        if now == self._last:
            return None
        self._last = now
        self.changes += not self.schedules
        self._recipe = _with_those_of(self._recipe, self._groups())
        return self._recipe

    def scale(self, ratio: float) -> OptimizerRecipe:
        """Multiplies every learning rate, of the optimizer or of the recipe alone; returns the recipe then."""
        for group in self._groups():
            group["lr"] = group["lr"] * ratio
        for schedule in self.schedules:
            schedule.scale(ratio)
        groups = self._groups()
        self._recipe = _with_those_of(self._recipe, groups) if groups else _scaled(self._recipe, ratio)
        self._last = self._numbers()
        return self._recipe

    def _groups(self) -> list[dict[str, Any]]:
        """Returns the parameter groups that there were at the beginning; what is added later is not trained."""
        return self._optimizer.param_groups[: self._count] if self._optimizer else []

    def _numbers(self) -> list[tuple[Any, ...]]:
        """Returns the present numbers of all groups, to be compared."""
        if self._recipe.by_path:
            named = zip(self._recipe.by_path.groups, self._groups(), strict=True)
            known = self._recipe.by_path.path  # else it makes the steps itself, and may keep counts among its options
            return [tuple(_plain(group.get(n)) for n in (options if known else ("lr",))) for options, group in named]
        others = ("momentum", "nesterov", "weight_decay", "betas", "eps", "trust", *REFUSED)
        return [(float(group["lr"]), *[group.get(name) for name in others]) for group in self._groups()]


def _scaled(recipe: OptimizerRecipe, ratio: float) -> OptimizerRecipe:
    """Returns `recipe` with every learning rate multiplied."""
    groups = tuple(replace(of, optimizer=_scaled(of.optimizer, ratio)) for of in recipe.groups)
    return replace(recipe, lr=recipe.lr * ratio, groups=groups)


def _with_those_of(recipe: OptimizerRecipe, groups: Sequence[Mapping[str, Any]]) -> OptimizerRecipe:
    """Returns `recipe` with the present numbers of an optimizer's parameter groups."""
    if recipe.by_path:
        pairs = zip(recipe.by_path.groups, groups, strict=True)
        options: tuple[dict[str, Option], ...] = tuple(
            {name: _plain(group.get(name, old[name])) for name in old} for old, group in pairs
        )
        return replace(
            recipe, lr=float(groups[0].get("lr", recipe.lr)), by_path=replace(recipe.by_path, groups=options)
        )
    first = _with_those_of_one(recipe, groups[0])
    if not recipe.groups:
        return first
    each = (
        replace(of, optimizer=_with_those_of_one(of.optimizer, group))
        for of, group in zip(recipe.groups, groups, strict=True)
    )
    return replace(first, groups=tuple(each))


def _with_those_of_one(own: OptimizerRecipe, group: Mapping[str, Any]) -> OptimizerRecipe:
    """Returns the recipe of one group with its present numbers. Raises ConfigError for options it cannot express."""
    for option in REFUSED:
        if group.get(option):
            raise ConfigError(f"the optimizer's {option} was set to {group[option]} while training: leave it as it was")
    betas = group.get("betas", (own.beta1, own.beta2))
    return replace(
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


def _plain(value: Any) -> Any:
    """Returns a tensor with one number as that number, a list as a tuple, and all else as it is."""
    if isinstance(value, torch.Tensor):
        return float(value)
    return tuple(value) if isinstance(value, list) else value


class LrFollower:
    """Tells the servers, and the rule of this worker, what a scheduler of the loop has changed."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer | None,
        recipe: Recipe,
        session: Session,
        servers: int,
        *,
        warns: bool,
        scale_local: Callable[[float], None] = lambda ratio: None,
    ) -> None:
        """`warns`: warn, once, of a scheduler that each worker steps by hand.

        `scale_local` multiplies the rate of local steps that no optimizer of the user makes.
        """
        self._watcher = LrWatcher(optimizer, recipe.optimizer)
        self._recipe, self._session, self._servers, self._warns = recipe, session, servers, warns
        self._scale_local, self._factor = scale_local, 1.0

    def add(self, schedule: SampleSchedule | LoopSchedule | SharedPlateau) -> None:
        """Adds a scheduler that is known, so that what it changes is not by hand."""
        self._watcher.schedules.append(schedule)

    @property
    def by_samples(self) -> bool:
        """Returns True if a scheduler goes by the samples of all workers."""
        return bool(self._watcher.schedules)

    def follow(self, update: Any) -> None:
        """Tells servers and `update`, this worker's rule, of a change. It is called before each step."""
        if self._session.rate_factor != self._factor:
            self._follow_operator(update)
        changed = self._watcher.changed()
        if changed is not None:
            self._warn()
            update.follow(self._recipe.of_rule(changed))
            self._session.tell_rate(self._servers, rate_of(changed))

    def _follow_operator(self, update: Any) -> None:
        """Multiplies the learning rate as a person has asked for, and records that."""
        ratio, self._factor = self._session.rate_factor / self._factor, self._session.rate_factor
        changed = self._watcher.scale(ratio)
        self._scale_local(ratio)
        update.follow(self._recipe.of_rule(changed))
        self._session.tell_rate(self._servers, rate_of(changed))
        me, reason = self._session.node.me, f"now {changed.lr:.4g}, before the schedule"
        self._session.reports.note(
            Decided(at=self._session.node.now(), party=str(me), rank=me.index, verdict="learning rate", reason=reason)
        )

    def _warn(self) -> None:
        """Warns once where each worker's scheduler runs at that worker's pace.

        The first change may be that of a scheduler which is made after `join`, and which nobody has stepped yet.
        """
        if self._warns and self._watcher.changes == MADE_AND_STEPPED:
            self._warns = False
            print(
                f"{self._recipe.scheme}: a scheduler that each worker steps by hand runs at that worker's pace; what a "
                "worker contributes counts at its own rate",
                file=sys.stderr,
            )


# ---- as a message ------------------------------------------------------------------------------------------------
def rate_of(recipe: OptimizerRecipe) -> Rate:
    """Returns the numbers of `recipe` as a message to the servers."""
    numbers = {name: getattr(recipe, name) for name in NUMBERS}
    return Rate(**numbers, groups=tuple(_flat(recipe)) if recipe.groups or recipe.by_path else ())


def heard(recipe: OptimizerRecipe, rate: Rate) -> OptimizerRecipe:
    """Returns `recipe` with the numbers of a message; `recipe` itself where they are of another optimizer."""
    if len(rate.groups) != (len(list(_flat(recipe))) if recipe.groups or recipe.by_path else 0):
        return recipe
    own = replace(recipe, **{name: getattr(rate, name) for name in NUMBERS})
    return _with_flat(own, rate.groups) if rate.groups else own


def median_of(recipes: Sequence[OptimizerRecipe]) -> OptimizerRecipe:
    """Returns a recipe in which each number is the median of theirs, so that one of three or more cannot choose any."""
    if all(recipe == recipes[0] for recipe in recipes):
        return recipes[0]
    middle = {name: statistics.median_low([getattr(recipe, name) for recipe in recipes]) for name in NUMBERS}
    own = replace(recipes[0], **middle)
    return _with_flat(own, [statistics.median_low(of) for of in zip(*map(_flat, recipes), strict=True)])


def _flat(recipe: OptimizerRecipe) -> Iterator[float]:
    """Yields all numbers of all groups, in the order that `_with_flat` expects."""
    for group in recipe.groups:
        yield from (float(getattr(group.optimizer, name)) for name in NUMBERS)
    for options in recipe.by_path.groups if recipe.by_path else ():
        for _, value in sorted(options.items()):
            if isinstance(value, int | float):
                yield float(value)
            elif isinstance(value, tuple):
                yield from map(float, value)


def _with_flat(recipe: OptimizerRecipe, numbers: Iterable[float]) -> OptimizerRecipe:
    """Returns `recipe` with the numbers that `_flat` yields."""
    left = iter(numbers)
    groups = []
    for group in recipe.groups:
        own = {name: type(getattr(group.optimizer, name))(next(left)) for name in NUMBERS}
        groups.append(replace(group, optimizer=replace(group.optimizer, **own)))
    if recipe.by_path is None:
        return replace(recipe, groups=tuple(groups))
    options = tuple({name: _next_of(value, left) for name, value in sorted(of.items())} for of in recipe.by_path.groups)
    return replace(recipe, groups=tuple(groups), by_path=replace(recipe.by_path, groups=options))


def _next_of(value: Option, left: Iterator[float]) -> Option:
    """Returns the next number, or tuple of numbers, as the type of `value`."""
    if isinstance(value, bool):
        return bool(next(left))
    if isinstance(value, int):
        number = next(left)
        return int(number) if number.is_integer() else number
    if isinstance(value, float):
        return next(left)
    return tuple(next(left) for _ in value) if isinstance(value, tuple) else value
