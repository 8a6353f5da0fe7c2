"""How fast a scheme goes while the speeds of its workers do odd things, in the simulator."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.scheme import Scheme
from paceline.core.trace import Record, Span
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps, Simulation

Speeds = Callable[[int, float, Random], float]
"""Seconds of a step that worker `rank` begins `now`."""

SAMPLES = 4
"""In a worker's own batch."""


class Throughput:
    """A run of `scheme` in which steps take what `speeds` says; what was trained when can be asked for."""

    def __init__(self, scheme: Scheme, speeds: Speeds, workers: int = 4, servers: int = 1, **more: Any) -> None:
        self.done: list[tuple[float, int, int]] = []
        work = LocalSteps(lambda rank, rng: speeds(rank, self.sim.now, rng), samples=lambda rank: SAMPLES)
        if "cluster" not in more:
            more.update(workers=workers, servers=servers)
        self.workers = workers
        self.sim = Simulation(scheme, Ghost(12), work, trace=self._see, watched=False, **more)

    def _see(self, record: Record) -> None:
        if isinstance(record, Span) and record.steps:
            self.done.append((self.sim.now, record.rank, record.samples))

    def between(self, since: float, until: float) -> list[float]:
        """Samples/s of each worker."""
        self.sim.run(until=until)
        samples = [0] * self.workers
        for at, rank, n in self.done:
            if since <= at < until:
                samples[rank] += n
        return [n / (until - since) for n in samples]


class Stalls:
    """Steps take `seconds` by rank; those that `at` asked to stall take `factor` times as long."""

    def __init__(self, seconds: tuple[float, ...], factor: float = 40.0) -> None:
        self.seconds, self.factor = seconds, factor
        self.due: dict[int, float] = {}

    def at(self, rank: int, at: float) -> float:
        """The first step that `rank` begins at that time or later stalls. Returns when it has ended at the latest."""
        self.due[rank] = at
        return at + (self.factor + 1) * self.seconds[rank]

    def __call__(self, rank: int, now: float, rng: Random) -> float:
        if now < self.due.get(rank, float("inf")):
            return self.seconds[rank]
        del self.due[rank]
        return self.factor * self.seconds[rank]
