"""A scheduler of the user's own changes the learning rate of an optimizer that only tells the recipe."""

from __future__ import annotations

from typing import Any

import torch


class Rate:
    """Notices that somebody has changed the learning rate of `optimizer`."""

    def __init__(self, optimizer: torch.optim.Optimizer | None) -> None:
        self._group: dict[str, Any] = optimizer.param_groups[0] if optimizer else {"lr": None}
        self._last = self._group["lr"]

    def changed(self) -> float | None:
        """The new rate, once."""
        if self._group["lr"] == self._last:
            return None
        self._last = self._group["lr"]
        return float(self._group["lr"])
