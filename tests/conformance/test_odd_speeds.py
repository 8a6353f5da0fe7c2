"""Schemes that plan by measured speeds, where speeds do what no plan expects.

Whatever happened before, a run is in the end at least half as fast as one that only knew the final speeds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from paceline.core.scheme import make
from paceline.sim.cluster.model import Fault, uniform
from tests.conformance.throughput import Throughput

CHANGE_S = 90.0
"""When speeds change, or are over with being odd."""

SETTLED_S = CHANGE_S + 110.0
WINDOW_S = 60.0

ADAPTIVE: list[tuple[str, dict[str, Any]]] = [
    ("esync", {}),
    ("esync", {"variant": "preprint"}),
    ("esync", {"delayed_ack": False}),
    ("esync", {"smoothing": "ema:0.3"}),
    ("esync", {"smoothing": "median:5"}),
    ("esync", {"cap": 8}),
    ("hybrid", {"phases": "bsp until 3 steps; esync"}),
    ("lbbsp", {}),
    ("lbbsp", {"smoothing": "last", "hysteresis": 0.0}),
    ("dssp", {}),
    ("dssp", {"low": 0, "high": 4}),
    ("gsp", {}),
    ("gsp", {"regroup": 5}),
]
Seconds = tuple[float, ...]


def usual(workers: int) -> Seconds:
    return tuple((0.5, 0.55, 1.0, 2.0)[rank % 4] * (1 + 0.003 * rank) for rank in range(workers))


@dataclass(frozen=True)
class Odd:
    """Steps take `before` x `times(rank, its step, rng)` until CHANGE_S, and `after` from then on."""

    before: Callable[[Seconds], Seconds] = lambda seconds: seconds
    after: Callable[[Seconds], Seconds] = lambda seconds: seconds
    times: Callable[[int, int, Random], float] = lambda rank, step, rng: 1.0

    def speeds(self, workers: int) -> Callable[[int, float, Random], float]:
        before, after = self.before(usual(workers)), self.after(usual(workers))
        steps = [-1] * workers

        def seconds(rank: int, now: float, rng: Random) -> float:
            steps[rank] += 1
            return before[rank] * self.times(rank, steps[rank], rng) if now < CHANGE_S else after[rank]

        return seconds


def stall(*ranks: int, step: int = 15, factor: float = 40.0) -> Callable[[int, int, Random], float]:
    return lambda rank, s, rng: factor if s == step and rank in ranks else 1.0


ODD = {
    "heavy-tailed steps": Odd(times=lambda rank, step, rng: min(rng.paretovariate(1.2), 40.0)),
    "the fastest becomes four times slower": Odd(after=lambda seconds: (4 * seconds[0], *seconds[1:])),
    "the slowest becomes the fastest": Odd(after=lambda seconds: (*seconds[:-1], 0.4)),
    "fast and slow change places": Odd(after=lambda seconds: seconds[::-1]),
    "one cold first step": Odd(times=stall(0, step=0, factor=100.0)),
    "all first steps are cold": Odd(times=lambda rank, step, rng: 40.0 if step == 0 else 1.0),
    "the slowest stalls": Odd(times=lambda rank, step, rng: 20.0 if rank == 3 and step == 15 else 1.0),
    "two stall at once": Odd(times=stall(0, 1)),
}


@functools.cache
def fresh(name: str, parameters: tuple[tuple[str, Any], ...], seconds: Seconds) -> float:
    """Samples/s of a run that has known nothing else."""
    run = Throughput(make(name, dict(parameters)), lambda rank, now, rng: seconds[rank], workers=len(seconds))
    return sum(run.between(CHANGE_S, CHANGE_S + WINDOW_S))


def holds(name: str, parameters: dict[str, Any], odd: Odd, workers: int) -> None:
    run = Throughput(make(name, parameters), odd.speeds(workers), workers=workers)
    late = run.between(SETTLED_S, SETTLED_S + WINDOW_S)
    reference = fresh(name, tuple(parameters.items()), odd.after(usual(workers)))
    assert sum(late) > 0.5 * reference, f"{late} samples/s; a fresh run makes {reference} in all"


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize(("name", "parameters"), ADAPTIVE, ids=str)
def test_it_ends_no_slower_than_half_of_a_fresh_run(name: str, parameters: Any, odd: Odd) -> None:
    holds(name, parameters, odd, workers=4)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("name", ["esync", "lbbsp", "dssp", "gsp"])
def test_so_it_does_with_2_workers(name: str, odd: Odd) -> None:
    holds(name, {}, odd, workers=2)


@pytest.mark.parametrize("odd", ["heavy-tailed steps", "the fastest becomes four times slower"])
@pytest.mark.parametrize("name", ["esync", "dssp", "gsp"])
def test_so_it_does_with_64_workers(name: str, odd: str) -> None:
    holds(name, {}, ODD[odd], workers=64)


@pytest.mark.parametrize("at_s", [60.0, 61.3, 62.0005])
@pytest.mark.parametrize(("name", "parameters"), ADAPTIVE, ids=str)
def test_a_worker_that_is_stopped_anywhere_in_a_round_is_soon_as_fast_as_before(
    name: str, parameters: Any, at_s: float
) -> None:
    """In a step or while it meets the others, sends or waits: nothing on the host moves for 20 s."""
    seconds = usual(4)
    stopped = Fault(kind="pause", at_s=at_s, for_s=20.0, hosts=("worker-0",))
    cluster = replace(uniform(4, 1, factors=(1.0,) * 4), faults=(stopped,), suspect_after_s=1000.0)
    run = Throughput(make(name, parameters), lambda rank, now, rng: seconds[rank], cluster=cluster)
    late = run.between(SETTLED_S, SETTLED_S + WINDOW_S)
    assert sum(late) > 0.8 * fresh(name, tuple(parameters.items()), seconds)
