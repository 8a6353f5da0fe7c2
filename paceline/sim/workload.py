"""What a worker's step gives and how many virtual seconds it takes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from paceline.core.effects import Computed, Trained
from paceline.core.role import Update


class Workload(Protocol):
    """The work of all workers. `rng` is the worker's own, so that no worker's speed depends on another's."""

    def compute(self, rank: int, w: Any, rng: Random) -> Computed:
        """One mini-batch at `w`."""

    def train(self, rank: int, x: Any, steps: int, rng: Random) -> Trained:
        """`steps` mini-batches of the worker's own optimizer from `x`."""


class Steps:
    """A workload made of functions.

    seconds: of one step of worker `rank`. gradient: of worker `rank` at w; without it the gradient is w itself,
    which is right for a Ghost. samples: in a batch of worker `rank`. lr: of the local optimizer, plain SGD.
    """

    def __init__(
        self,
        seconds: Callable[[int, Random], float],
        gradient: Callable[[int, Any], Any] = lambda rank, w: w,
        *,
        samples: Callable[[int], int] = lambda rank: 1,
        lr: float = 0.1,
    ) -> None:
        self._seconds = seconds
        self._gradient = gradient
        self._samples = samples
        self._lr = lr

    def compute(self, rank: int, w: Any, rng: Random) -> Computed:
        return Computed(self._gradient(rank, w), self._samples(rank), self._seconds(rank, rng))

    def train(self, rank: int, x: Any, steps: int, rng: Random) -> Trained:
        seconds = 0.0
        for _ in range(steps):
            x = x - self._gradient(rank, x) * self._lr
            seconds += self._seconds(rank, rng)
        return Trained(x, self._samples(rank) * steps, seconds)


def plain_sgd(lr: float) -> Callable[[int], Update]:
    """An update factory: w - lr g for a party that holds `length` parameters."""

    def factory(length: int) -> Update:
        return lambda w, g, samples: w - g * lr

    return factory
