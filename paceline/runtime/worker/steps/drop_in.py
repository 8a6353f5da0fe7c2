"""Implements `pace.optimizer`: what a framework that calls `optimizer.step()` is given instead of the optimizer."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from paceline.engine.model.flat_model import FlatModel
from paceline.engine.model.several_models import SeveralOfOneModel, SeveralOptimizers
from paceline.engine.optim.own_optimizer import UserSteps, evaluates_again

ONLY = ""
"""The name of the optimizer of a loop with one model."""


class DropInOptimizer(torch.optim.Optimizer):
    """Wraps the user's optimizer, with `pace.step` as its `step`. Its groups, its state and all else are the
    original's.

    A gradient scaler skips a step whose gradients are not finite. Then nothing is handed over, and the gradients are
    cleared as a step clears them: the next ones would be added to infinity.
    """

    _step_supports_amp_scaling = False
    """A scaler unscales the gradients itself, also those of a fused optimizer: its own step would do it too late."""

    def __init__(
        self,
        original: torch.optim.Optimizer,
        flat: FlatModel,
        hand_over: Callable[..., None],
        cleared: Callable[[bool], None],
        steps: UserSteps | None = None,
    ) -> None:
        """`hand_over(samples=...)` makes the step; `cleared` is called when gradients are cleared without one, with
        True where a gradient scaler has skipped it. `steps`: what calls the optimizer on this worker.

        A framework that reads batches ahead sets `samples` before each step; None counts those that came from
        `pace.loader` since the last one.
        """
        self.samples: int | None = None
        # Not torch's own: there is nothing to group, and what there is belongs to `original`.
        self._original, self._flat, self._hand_over, self._cleared = original, flat, hand_over, cleared
        self._steps = steps if evaluates_again(original) else None
        self.calls = 0  # of `step`
        self._optimizer_step_pre_hooks: OrderedDict[int, Any] = OrderedDict()
        self._optimizer_step_post_hooks: OrderedDict[int, Any] = OrderedDict()
        self._patch_step_function()
        _watch_scalers()

    @property
    def original(self) -> torch.optim.Optimizer:
        """Returns the user's optimizer."""
        return self._original

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
        returned. An optimizer that evaluates the model several times calls `closure` again in its step."""
        self.calls += 1
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._steps is not None:
            self._steps.evaluate, self._steps.loss = closure, loss
        try:
            self._hand_over(samples=self.samples)
        finally:
            if self._steps is not None:
                self._steps.evaluate = self._steps.loss = None
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears gradients that were not handed over. After `step` there are none."""
        if self._flat.has_gradient:
            self._original.zero_grad(set_to_none)
            self._cleared(False)

    def skipped(self) -> None:
        """Clears the gradients of all models after a step that a gradient scaler has skipped, as a step does."""
        for p in self._flat.parameters:
            p.grad = None
        self._cleared(True)

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


@functools.cache
def _watch_scalers() -> None:
    """Lets gradient scalers report to a `DropInOptimizer` that they have skipped its step.

    torch has no hook for that. `_step_supports_amp_scaling` would do, but Lightning refuses to clip for such
    optimizers, and Accelerate takes their skipped steps for steps.
    """
    original = torch.amp.GradScaler.step

    @functools.wraps(original)
    def step(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        before = optimizer.calls if isinstance(optimizer, DropInOptimizer) else 0
        result = original(scaler, optimizer, *args, **kwargs)
        if isinstance(optimizer, DropInOptimizer) and optimizer.calls == before:
            optimizer.skipped()
        return result

    torch.amp.GradScaler.step = step  # type: ignore[assignment, method-assign]


def drop_ins(
    optimizer: torch.optim.Optimizer | None,
    flat: FlatModel,
    step: Callable[..., None],
    cleared: Callable[[bool], None],
    steps: UserSteps | None = None,
) -> dict[str, DropInOptimizer]:
    """Returns an optimizer for each model by name, for the only one by `ONLY`; {} where the loop has no optimizer.

    Of several optimizers of one model the step of the last makes that of all.
    """
    if isinstance(optimizer, SeveralOfOneModel):
        *others, last = optimizer.members
        waits: dict[str, Callable[..., None]] = dict.fromkeys(others, lambda samples=None: None)
        steps_by = {**waits, last: step}
        return {name: DropInOptimizer(optimizer.members[name], flat, by, cleared) for name, by in steps_by.items()}
    if isinstance(optimizer, SeveralOptimizers):
        named = optimizer.members.items()
        return {name: DropInOptimizer(each, flat, functools.partial(step, name), cleared) for name, each in named}
    return {ONLY: DropInOptimizer(optimizer, flat, step, cleared, steps)} if optimizer is not None else {}
