"""Workloads: what a worker's step computes, and how many virtual seconds it takes on the reference device.

`LocalSteps` is enough for tests and timing; `runtime/simulated` makes a workload of a real model and data set, and
`faults/parties/sample_leases.py` wraps one for leased samples. The seconds are those of the reference device: the
driver stretches them by the worker's own device (`cluster/step_times.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from paceline.core.effects import KEEP, Compute, Computed, Data, Train, Trained
from paceline.core.role import Update
from paceline.core.vector import Ghost, cut


class Workload(Protocol):
    """Does the work of all workers. `rng` is the worker's own, so that no worker's speed depends on another's."""

    def compute(self, rank: int, wanted: Compute, rng: Random) -> Computed:
        """Returns what worker `rank` gets for `wanted`: the mean gradient at `wanted.w` over `wanted.steps`
        mini-batches.

        `seconds` of the result is virtual time on the reference device, for all steps together.
        """

    def train(self, rank: int, wanted: Train, rng: Random) -> Trained:
        """Returns the weights after `wanted.steps` mini-batches of the worker's own optimizer, beginning at `wanted.x`.

        `wanted.memory` says whether the optimizer goes on with its state (KEEP), with an empty one, or with the
        state given.
        """


class Limit(Protocol):
    """Limits how much the workers of a run train. `batch_limits`: their largest batches, by rank, 0 for any; () where
    nobody has one."""

    batch_limits: tuple[int, ...]

    def done(self, rank: int) -> bool:
        """Returns True if worker `rank` has no more work; it leaves when it would begin some."""

    def steps(self, rank: int) -> int:
        """Returns the number of mini-batches in the work that worker `rank` began last."""


class SimulatedLeaseSource(Protocol):
    """Hears what becomes of leased samples, which are the `data` of a result."""

    def settled(self, rank: int, fate: str, data: Data) -> None:
        """Notes the fate of a contribution at the first server: applied, dropped, late."""

    def unused(self, rank: int, data: Data) -> None:
        """Notes that the worker was restarted while it worked at these samples: nobody has their gradient."""

    def gone(self, rank: int, pending: Data) -> None:
        """Notes that the incarnation is over: of what the first server heard, only `pending` may still be applied."""


@dataclass(frozen=True, slots=True)
class UniformSeconds:
    """Draws the seconds of a step evenly between `low` and `high`, from the worker's own generator.

    `LocalSteps` asks it for several steps in one call, since a scheme that trains locally makes hundreds between two
    exchanges. The seconds are those of a function that returns `rng.uniform(low, high)`, bit for bit.
    """

    low: float
    high: float

    def __call__(self, rank: int, rng: Random) -> float:
        """Returns the seconds of one step."""
        return rng.uniform(self.low, self.high)

    def of_steps(self, rng: Random, steps: int) -> float:
        """Returns the sum of the seconds of `steps` steps."""
        low, more, draw, seconds = self.low, self.high - self.low, rng.random, 0.0
        for _ in range(steps):
            seconds += low + more * draw()
        return seconds


class LocalSteps:
    """Builds a workload from functions.

    seconds       of one step of worker `rank` with a mini-batch of its own size; other sizes take time in proportion.
                  A function, or `UniformSeconds`, which is quicker
    gradient      of worker `rank` at w, as long as w; without it the gradient is w itself, which is right for a Ghost:
                  no arithmetic is done with one
    samples       in a mini-batch of worker `rank`
    lr, momentum  of the local optimizer: v = momentum v + g, x = x - lr v
    """

    def __init__(
        self,
        seconds: Callable[[int, Random], float],
        gradient: Callable[[int, Any], Any] | None = None,
        *,
        samples: Callable[[int], int] = lambda rank: 1,
        lr: float = 0.1,
        momentum: float = 0.0,
    ) -> None:
        self._seconds = seconds
        self._gradient, self._plain = gradient or (lambda rank, w: w), gradient is None
        self._samples = samples
        self._lr = lr
        self._momentum = momentum
        self._memory: dict[int, Any] = {}

    def compute(self, rank: int, wanted: Compute, rng: Random) -> Computed:
        """Returns the running mean of the gradients of `wanted.steps` mini-batches at the same weights.

        Seconds are drawn once per step, so a mean over several steps has less relative jitter than a single step.
        """
        gradient, seconds_of, samples_of = self._gradient, self._seconds, self._samples
        own, w, steps = samples_of(rank), wanted.w, wanted.steps
        samples = wanted.samples or own
        g = gradient(rank, w)
        if steps == 1:
            return Computed(g, samples, seconds_of(rank, rng) * samples / own)
        if not (self._plain and type(w) is Ghost):
            for n in range(2, steps + 1):
                g = g + (gradient(rank, w) - g) * (1.0 / n)
        return Computed(g, samples * steps, self._all_seconds(rank, rng, steps) * samples / own)

    def train(self, rank: int, wanted: Train, rng: Random) -> Trained:
        """Returns the weights after SGD steps with momentum, and remembers the velocity of worker `rank`."""
        x, steps, memory = wanted.x, wanted.steps, wanted.memory
        v: Any = memory  # the velocity to begin with, unless it is KEEP (the worker's own) or RESET (zero)
        if type(memory) is str:
            v = self._memory.get(rank) if memory == KEEP else None
        if self._plain and type(x) is Ghost:
            v = x if self._momentum else v
        else:
            for _ in range(steps):
                g = self._gradient(rank, x)
                if self._momentum:
                    v = g if v is None else g + v * self._momentum
                x = x - (v if self._momentum else g) * self._lr
        self._memory[rank] = v
        seconds = self._all_seconds(rank, rng, steps)
        return Trained(x, self._samples(rank) * steps, seconds, v if wanted.show_memory else None)

    def _all_seconds(self, rank: int, rng: Random, steps: int) -> float:
        """Returns the sum of the seconds of `steps` steps, each of which is drawn by itself."""
        seconds_of, seconds = self._seconds, 0.0
        if type(seconds_of) is UniformSeconds:
            return seconds_of.of_steps(rng, steps)
        for _ in range(steps):
            seconds += seconds_of(rank, rng)
        return seconds


def plain_sgd(lr: float) -> Callable[[int], Update]:
    """Returns an update factory for plain SGD: w - lr g, for a party that holds `length` parameters."""

    def factory(length: int) -> Update:
        return lambda w, g, samples, unused=(): w - g * lr

    return factory


@dataclass(frozen=True, slots=True)
class ModelShard:
    """Describes the part of the model that one server holds. `make_update` returns the server's update rule, anew each
    time."""

    part: slice
    make_update: Callable[[], Update]


def equal_shards(length: int, servers: int, update_factory: Callable[[int], Update]) -> tuple[ModelShard, ...]:
    """Returns `servers` shards of a model of `length` parameters, in order and all of about the same size; () without
    servers."""
    parts = cut(length, servers) if servers else ()
    return tuple(ModelShard(part, functools.partial(update_factory, part.stop - part.start)) for part in parts)
