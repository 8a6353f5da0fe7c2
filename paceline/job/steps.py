"""What the scheme asks of the loop, carried out one mini-batch at a time.

A `Compute` or a `Train` may take several mini-batches; each is one forward and backward of the user's loop.
"""

from __future__ import annotations

from typing import Any, cast

import torch

from paceline.core.effects import Compute, Computed, Train, Trained
from paceline.engine.flatten import FlatModel
from paceline.engine.rules import LocalOptimizer
from paceline.engine.vector import Flat
from paceline.job.recipe import Recipe


class Steps:
    """One piece of work after the other. Local steps are made by `optimizer`, or by one made from the recipe."""

    def __init__(self, flat: FlatModel, recipe: Recipe, optimizer: torch.optim.Optimizer | None) -> None:
        self._flat, self._recipe, self._given = flat, recipe, optimizer
        self._made: LocalOptimizer | None = None
        self._wanted: Compute | Train | None = None
        self._left = self._samples = 0
        self._seconds = 0.0

    def begin(self, wanted: Compute | Train) -> bool:
        """Load the weights to work at. Was there an exchange since the last piece of work?"""
        before, self._wanted = self._wanted, wanted
        self._left, self._samples, self._seconds = 1, 0, 0.0
        match wanted:
            case Compute(w):
                self._flat.load(cast(Flat, w))
            case Train(x, steps):
                self._flat.load(cast(Flat, x))
                self._left = steps
        return before is not None and not self._goes_on_alone()

    def done(self, samples: int, seconds: float) -> Computed | Trained | None:
        """Count a mini-batch; the result when it was the last of those asked for."""
        self._left -= 1
        self._samples += samples
        self._seconds += seconds
        if self._left:
            return None
        if isinstance(self._wanted, Train):
            return self._trained()
        return Computed(self._flat.gradient(), self._samples, self._seconds)

    def apply(self, samples_seen: int) -> None:
        """Between backward and `done`: a local step changes the model in place."""
        if not isinstance(self._wanted, Train):
            return
        if self._given is not None:
            self._given.step()
            return
        if self._made is None:
            self._made = LocalOptimizer(self._flat, self._recipe.optimizer, self._recipe.schedule)
        self._made.step(samples_seen)

    def _trained(self) -> Trained:
        self._ended: Any = self._flat.weights()
        return Trained(self._ended, self._samples, self._seconds)

    def _goes_on_alone(self) -> bool:
        """Is the next local step to start just where the last one ended, so that nothing was exchanged?"""
        return isinstance(self._wanted, Train) and self._wanted.x is getattr(self, "_ended", None)
