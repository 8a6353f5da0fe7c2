"""Implements `pace.optimizer`: what a framework that calls `optimizer.step()` is given instead of the optimizer."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from paceline.engine.model.flat_model import FlatModel
from paceline.engine.model.several_models import SeveralOptimizers

ONLY = ""
"""The name of the optimizer of a loop with one model."""


class DropInOptimizer(torch.optim.Optimizer):
    """Wraps the user's optimizer, with `pace.step` as its `step`. Its groups, its state and all else are the
    original's.

    A gradient scaler skips a step whose gradients are not finite; then nothing is handed over, and `zero_grad`
    clears them.
    """

    def __init__(
        self,
        original: torch.optim.Optimizer,
        flat: FlatModel,
        hand_over: Callable[[], None],
        cleared: Callable[[], None],
    ) -> None:
        """`hand_over` makes the step; `cleared` hears that gradients are gone without one."""
        # Not torch's own: there is nothing to group, and what there is belongs to `original`.
        self._original, self._flat, self._hand_over, self._cleared = original, flat, hand_over, cleared
        self._optimizer_step_pre_hooks: OrderedDict[int, Any] = OrderedDict()
        self._optimizer_step_post_hooks: OrderedDict[int, Any] = OrderedDict()
        self._patch_step_function()

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Returns the groups of the user's optimizer, which schedulers change."""
        return self._original.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """Returns the state of the user's optimizer."""
        return self._original.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        """Returns the defaults of the user's optimizer."""
        return self._original.defaults

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Calls `closure`, which is to call backward, if there is one, then `pace.step`; returns what `closure`
        returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._hand_over()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears gradients that were not handed over. After `step` there are none."""
        if self._flat.has_gradient:
            self._original.zero_grad(set_to_none)
            self._cleared()

    def state_dict(self) -> dict[str, Any]:
        """Returns the original's state; where servers make the steps, the state is theirs, and not in here."""
        return self._original.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads state into the user's optimizer."""
        self._original.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group to the user's optimizer."""
        self._original.add_param_group(param_group)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_original"], name)

    def __getstate__(self) -> dict[str, Any]:
        return self._original.__getstate__()

    def __repr__(self) -> str:
        return f"pace.optimizer of {self._original!r}"


def drop_ins(
    optimizer: torch.optim.Optimizer | None, flat: FlatModel, step: Callable[..., None], cleared: Callable[[], None]
) -> dict[str, DropInOptimizer]:
    """Returns an optimizer for each model by name, for the only one by `ONLY`; {} where the loop has no optimizer."""
    if isinstance(optimizer, SeveralOptimizers):
        named = optimizer.members.items()
        return {name: DropInOptimizer(each, flat, functools.partial(step, name), cleared) for name, each in named}
    return {ONLY: DropInOptimizer(optimizer, flat, step, cleared)} if optimizer is not None else {}
