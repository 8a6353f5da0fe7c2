"""Builds the optimizer of a key-value store: any of torch.optim that works element by element, by name and numbers.

Workers describe the optimizer (`updater_of`), the description travels as JSON, and each key on a server makes a rule
of it (`Updater.make_rule`). No code and no pickle travels, unlike in MXNet, whose workers send a pickled optimizer.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch

from paceline.core.errors import ConfigError
from paceline.core.registry import nearest
from paceline.core.spans import Spans
from paceline.core.validation.bounds import TEXT_MAX
from paceline.engine.optim.optimizers import CONSTANT, ServerOptimizer, TorchRule, make_rule
from paceline.engine.optim.unused_parameters import Pieces
from paceline.engine.specs import OptimizerRecipe
from paceline.engine.vectors.flat import Flat
from paceline.runtime.kvstore.placement import Key, text_of

Number = bool | int | float | tuple[float, ...] | None

KINDS = ("SGD", "ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")
"""Optimizers that need nothing but an element's own past, so that a key may be cut over servers."""

ALIASES = {"learning_rate": "lr", "wd": "weight_decay", "lazy_update": "lazy"}
"""MXNet's names of arguments, and torch's."""

DEFAULTS: dict[str, dict[str, Any]] = {"AdamW": {"weight_decay": 0.01}}
"""Defaults of torch that differ from those of `OptimizerRecipe`, besides the learning rate, which is 0.001 in all."""

HOW_IT_IS_COMPUTED = ("foreach", "fused", "capturable", "differentiable", "decoupled_weight_decay")
"""Options that do not change the numbers, or that another name stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Updater:
    """Describes an optimizer.

    name     a class of torch.optim
    numbers  its arguments
    rescale  what a sum of gradients is multiplied with before the update
    lazy     rows that a sparse gradient does not have are left alone (SGD, Adam, AdamW)
    lr_mult  by the text of a key: what the learning rate is multiplied with there; 1 where none is given
    wd_mult  the same of the weight decay
    """

    name: str
    numbers: dict[str, Number] = field(default_factory=dict)
    rescale: float = 1.0
    lazy: bool = False
    lr_mult: dict[str, float] = field(default_factory=dict)
    wd_mult: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> str:
        """Returns the description as JSON with its keys in a fixed order."""
        return msgspec.json.encode(self, order="deterministic").decode()

    @classmethod
    def from_json(cls, text: str) -> Updater:
        """Returns the updater of a text. Raises ConfigError for any other text, or for an optimizer that servers do not
        run."""
        try:
            updater = msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError as error:
            raise ConfigError(f"no optimizer: {error}") from None
        if updater.name not in KINDS:
            raise ConfigError(
                f"an optimizer {updater.name!r} cannot run on the servers, which hold parts of tensors"
                f"{nearest(updater.name, KINDS)}"
            )
        for factor in (*updater.lr_mult.values(), *updater.wd_mult.values()):
            if not (math.isfinite(factor) and factor >= 0):
                raise ConfigError(f"lr_mult or wd_mult of {factor}: must be a number, 0 or more")
        # Made once and dropped: numbers that torch refuses are refused here, and not at the first push.
        updater.make_rule()
        updater.rule_of(next(iter(updater.wd_mult), ""))
        return updater

    def rule_of(self, key: str) -> ServerOptimizer:
        """Returns a new rule for the key of this text (`placement.text_of`), with its multipliers."""
        updater = self
        if key in self.wd_mult:
            decay: Any = self.numbers.get("weight_decay", DEFAULTS.get(self.name, {}).get("weight_decay", 0.0))
            updater = dataclasses.replace(self, numbers={**self.numbers, "weight_decay": decay * self.wd_mult[key]})
        rule = updater.make_rule()
        rule.set_lr(rule.lr * self.lr_mult.get(key, 1.0))
        return rule

    def make_rule(self) -> ServerOptimizer:
        """Returns a new rule with an empty state. Raises ConfigError for numbers that torch refuses, in torch's
        words."""
        try:
            recipe = self._recipe()
            return make_rule(recipe) if recipe else _NamedRule(self)
        except ConfigError:
            raise
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{self.name}: {str(error).removeprefix(self.name).lstrip('.')}") from None

    def _recipe(self) -> OptimizerRecipe | None:
        """Returns the recipe of a rule that is written in vector arithmetic, or goes by rows; None for all others.

        Raises ConfigError for lazy updates that no rule has.
        """
        names = {field.name for field in dataclasses.fields(OptimizerRecipe)}
        usual = {"lr": 0.001, **DEFAULTS.get(self.name, {})}
        # Options of torch that are off (False, None, 0) say nothing, so they need no counterpart in the recipe.
        numbers = {key: value for key, value in self.numbers.items() if key in (*names, "betas") or value}
        numbers = {**usual, **numbers}
        if "betas" in numbers:
            numbers["beta1"], numbers["beta2"] = numbers.pop("betas")  # type: ignore[misc]
        known = self.name == "SGD" or (self.lazy and self.name in ("Adam", "AdamW"))
        if known and set(numbers) <= names:
            return OptimizerRecipe(name=self.name.lower(), lazy=self.lazy, **numbers)  # type: ignore[arg-type]
        if self.lazy:
            raise ConfigError(f"lazy updates are for SGD, Adam and AdamW without further options, not for {self.name}")
        return None


class _NamedRule(TorchRule):
    """Applies the torch.optim class of that name to a flat value.

    Some classes make their state together with the parameter, so it must be as long as the value, whose length is
    not known before the first update.
    """

    def __init__(self, updater: Updater) -> None:
        ServerOptimizer.__init__(self, OptimizerRecipe(), CONSTANT)
        self._updater = updater
        self._make(torch.empty(0))
        self._pieces.reset()
        self.lr = self._pieces.lr

    def _make(self, like: torch.Tensor) -> None:
        kind, numbers = getattr(torch.optim, self._updater.name), self._updater.numbers
        self._pieces = Pieces(lambda parameters: kind(parameters, **numbers), like=like)

    def apply(self, w: Flat, g: Flat, lr: float, unused: Spans = ()) -> Flat:
        if self._pieces.remember_nothing:
            self._make(torch.empty(len(w), device=w.device))
        return super().apply(w, g, lr, unused)


def updater_of(
    optimizer: torch.optim.Optimizer | str,
    numbers: Mapping[str, Any],
    *,
    rescale_grad: float = 1.0,
    lr_mult: Mapping[Key, float] | None = None,
    wd_mult: Mapping[Key, float] | None = None,
) -> Updater:
    """Returns the updater for an optimizer of torch's, or for a name and `numbers` under torch's names or MXNet's.

    `lr_mult` and `wd_mult` multiply the learning rate and the weight decay of single keys. Raises ConfigError, naming
    the way out, for what name and numbers cannot describe, or what torch refuses.
    """
    if isinstance(optimizer, str):
        name = next((kind for kind in KINDS if kind.lower() == optimizer.lower()), optimizer)
        given = {ALIASES.get(key, key): value for key, value in numbers.items()}
    elif isinstance(optimizer, torch.optim.Optimizer):
        if numbers:
            raise ConfigError(f"set_optimizer: {', '.join(numbers)} belong into the optimizer itself")
        name, given = type(optimizer).__name__, _numbers_of(optimizer)
    else:
        raise ConfigError(f"set_optimizer takes torch.optim.SGD(...) or a name such as 'sgd', not {optimizer!r}")
    if not _is_number(rescale_grad):
        raise ConfigError(f"rescale_grad = {rescale_grad!r}: must be a number")
    if name in KINDS and not isinstance(optimizer, str) and type(optimizer) is not getattr(torch.optim, name):
        raise ConfigError(f"an optimizer of your own that is called {name} cannot run on the servers")
    lazy = bool(given.pop("lazy", False))
    updater = Updater(
        name=name,
        numbers=_checked(name, given),
        rescale=float(rescale_grad),
        lazy=lazy,
        lr_mult=_multipliers("lr_mult", lr_mult or {}),
        wd_mult=_multipliers("wd_mult", wd_mult or {}),
    )
    text = updater.to_json()
    if len(text) > TEXT_MAX:
        raise ConfigError(
            f"set_optimizer: {len(text)} characters with lr_mult and wd_mult, {TEXT_MAX} at most: name fewer keys"
        )
    return Updater.from_json(text)  # as the servers will read it


def _multipliers(what: str, given: Mapping[Key, float]) -> dict[str, float]:
    """Returns the multipliers by the text of their keys. Raises ConfigError for one that is no number, 0 or more."""
    for key, factor in given.items():
        if not _is_number(factor) or factor < 0:
            raise ConfigError(f"{what} of key {key!r} = {factor!r}: must be a number, 0 or more")
    return {text_of(key): float(factor) for key, factor in given.items()}


def _numbers_of(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Returns the arguments of a torch optimizer. Raises ConfigError unless all parameters are in one group."""
    if len(optimizer.param_groups) != 1:
        raise ConfigError(f"the optimizer has {len(optimizer.param_groups)} parameter groups: put all into one")
    group = optimizer.param_groups[0]
    if type(optimizer) is torch.optim.Adam and group.get("decoupled_weight_decay"):
        raise ConfigError("Adam(decoupled_weight_decay=True) is AdamW: use that")
    usual = optimizer.defaults
    return {key: value for key, value in group.items() if key in usual and key not in HOW_IT_IS_COMPUTED}


def _checked(name: str, given: Mapping[str, Any]) -> dict[str, Number]:
    """Returns the arguments as plain numbers. Raises ConfigError for others; tensors of one number count as numbers."""
    found: dict[str, Number] = {}
    for key, value in given.items():
        plain = value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value
        plain = tuple(plain) if isinstance(plain, list) else plain
        parts = plain if isinstance(plain, tuple) else (plain,)
        if not all(_is_number(part) or (part is None and key not in ("lr", "momentum")) for part in parts):
            raise ConfigError(f"{name}: {key} = {value!r}: must be a number")
        found[key] = plain
    return found


def _is_number(value: Any) -> bool:
    """Returns True for a finite number or a bool."""
    return isinstance(value, bool | int | float) and math.isfinite(value)
