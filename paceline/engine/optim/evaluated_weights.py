"""Supports optimizers that evaluate other weights than they train, such as schedule-free ones.

`optimizer.eval()` turns the parameters into the weights to evaluate, in place, and `optimizer.train()` back into those
at which gradients are taken; each does nothing the second time. What is exchanged are the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.engine.model.several_models import SeveralOptimizers
from paceline.engine.vectors.weight_samples import WeightSamples


def evaluates_others(optimizer: torch.optim.Optimizer | None) -> bool:
    """Returns True for an optimizer that evaluates other weights than it trains."""
    return bool(_turning(optimizer))


def show_trained(optimizer: torch.optim.Optimizer | None, numbers: Callable[[], Sequence[Tensor]] = tuple) -> bool:
    """Turns the parameters into the weights that are trained. Returns True if they were those to evaluate.

    `numbers` returns the memory that the parameters have.
    """
    turning = _turning(optimizer)
    if not turning:
        return False
    samples = WeightSamples(numbers)
    samples.note()
    for each in turning:
        each.train()
    return samples.changed


def show_evaluated(optimizer: torch.optim.Optimizer | None) -> None:
    """Turns the parameters into the weights to evaluate."""
    for each in _turning(optimizer):
        each.eval()


def _turning(optimizer: torch.optim.Optimizer | None) -> list[Any]:
    members = list(optimizer.members.values()) if isinstance(optimizer, SeveralOptimizers) else [optimizer]
    return [each for each in members if all(callable(getattr(each, name, None)) for name in ("train", "eval"))]
