"""A learning rate by the number of updates."""

from __future__ import annotations


class FactorScheduler:
    """Multiplies the learning rate by `factor` after each `step` updates."""

    def __init__(self, step: int, factor: float = 1.0, base_lr: float = 0.01) -> None:
        self.step, self.factor, self.base_lr, self.reduced_at = step, factor, base_lr, 0

    def __call__(self, updates: int) -> float:
        while updates > self.reduced_at + self.step:
            self.reduced_at += self.step
            self.base_lr *= self.factor
        return self.base_lr
