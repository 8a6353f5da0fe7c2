"""Lets the optimizers of torch do without its compiler, whose import takes most of a second of processor time.

torch.optim imports `torch._dynamo` at its first use, whether or not anything is compiled:

    add_param_group, zero_grad,        `torch._disable_dynamo` asks the compiler to leave them alone; it keeps the
    state_dict, load_state_dict        answer as an attribute of the function, `__dynamo_disable`
    step of SGD, Adam, ...             `_use_grad_for_differentiable` ends a graph of the compiler before and after it

Processes of a run that compile nothing ask in vain. `optimizers_without_compiler` gives the first ones their own
function as the answer, and replaces the wrapper of `step` by one that only switches gradients off. What is computed
stays the same, bit for bit. A model that is compiled still is: the compiler is imported when it is asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

ANSWER = "__dynamo_disable"
"""The attribute in which `torch._disable_dynamo` keeps what the compiler answered."""
LEFT_ALONE = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
STEP_WRAPPER = "_use_grad"
"""The name of the function that `_use_grad_for_differentiable` returns."""


def optimizers_without_compiler() -> bool:
    """Changes the classes of torch.optim in this process. Returns False where this release of torch is built otherwise.

    It is called before the process makes its first optimizer; a second call changes nothing.
    """
    methods = [getattr(torch.optim.Optimizer, name, None) for name in LEFT_ALONE]
    if not all(hasattr(method, "__wrapped__") for method in methods):
        return False
    for method in methods:
        setattr(method.__wrapped__, ANSWER, method.__wrapped__)  # type: ignore[union-attr]
    for kind in _kinds():
        wrapper = vars(kind).get("step")
        if getattr(getattr(wrapper, "__code__", None), "co_name", "") == STEP_WRAPPER:
            kind.step = _with_gradients_off(wrapper.__wrapped__)  # type: ignore[method-assign, union-attr]
    return True


def _kinds() -> Iterator[type[torch.optim.Optimizer]]:
    """Yields the optimizers that torch.optim names."""
    for kind in vars(torch.optim).values():
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer):
            yield kind


def _with_gradients_off(step: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `step` of an optimizer, which computes no gradients unless the optimizer is `differentiable`."""

    @functools.wraps(step)
    def stepping(self: torch.optim.Optimizer, *arguments: Any, **options: Any) -> Any:
        """Makes the step."""
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(self.defaults["differentiable"])
        try:
            return step(self, *arguments, **options)
        finally:
            torch.set_grad_enabled(before)

    return stepping
