"""Finds out who holds whom up, and what that costs.

A step of worker i takes p_i = e_i + w_i seconds: e_i its own (computing, sending, receiving), w_i waiting. Some
waiting there would be with nobody to wait for: w = min w_i, which even the one has who comes last. Without the
workers S worker i would wait for the slowest of those that are left of whom it waits for,

    p'_i = min(p_i, M_i + w)              M_i: mean of max(e_j) over j: i, and those it waits for, all but S

and so the others would do R' = sum(n_i / p'_i) samples a second, i not in S, where all now do R = sum(n_i / p_i).
The cost of S is R' - R. It is negative where nobody waits for S: an asynchronous worker is worth what it does,
however slow it is. S are the slowest by e_i, and as few as account for half of what any number of them costs.

Example (BSP, 32 samples a step): e = 10, 10, 40 ms, so every step takes 40 ms and R = 96 / 0.04 = 2,400 samples/s.
Without the slow worker the others would need 10 ms: R' = 64 / 0.01 = 6,400. It costs 4,000 samples/s.

Steps vary, and whoever waits for several waits for the slowest each time; M is therefore more than the largest mean.
With e_j normal it is taken where the probability that all are done is exp(-exp(-gamma)), as at the mean of a Gumbel
distribution, which is what the largest of many comes to (Fisher and Tippett 1928).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

WORTH = 0.05
"""Fraction of all samples a second: a cost below this is not reported."""
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)
"""How many of the slowest may hold the others up together."""
BISECTIONS = 10
"""Halvings by which the mean of the largest is found: to a thousandth of the range."""
ALL_DONE = math.exp(-math.exp(-0.5772156649))
"""The probability that a Gumbel variable is below its mean; 0.577... is Euler's gamma."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTiming:
    """Holds one worker's times, by its latest steps: seconds a step of its own and of waiting, samples a step.

    spread_s: standard deviation of own_s. waits_for: ranks, where the trace names them; None where it may be
    anybody.
    """

    rank: int
    own_s: float
    waiting_s: float
    samples: float
    spread_s: float = 0.0
    waits_for: frozenset[int] | None = None

    @property
    def step_s(self) -> float:
        """Returns the seconds of a step, with what the worker waits for others."""
        return self.own_s + self.waiting_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """Says that `ranks`, the slowest first, hold the others up.

    Rates in samples/s: `rate` of all as it is, `without` of the others without them. own_s: of the slowest of them;
    others_own_s: of the slowest other.
    """

    ranks: tuple[int, ...]
    rate: float
    without: float
    own_s: float
    others_own_s: float

    @property
    def cost(self) -> float:
        """Returns the samples per second that the others would do more than all do now."""
        return self.without - self.rate


def straggler(timings: Sequence[WorkerTiming]) -> Straggler | None:
    """Returns who holds the others up; None where nobody costs them WORTH of the throughput."""
    timings = [timing for timing in timings if timing.step_s > 0]
    if len(timings) < 2:
        return None
    rate = sum(timing.samples / timing.step_s for timing in timings)
    counts = [count for count in COUNTS if count <= len(timings) / 2]
    slowest = heapq.nlargest(counts[-1], timings, key=lambda timing: timing.own_s)
    gains = [rate_without(timings, slowest[:count]) - rate for count in counts]
    if max(gains) < WORTH * rate:
        return None
    count, gain = next(found for found in zip(counts, gains, strict=True) if found[1] >= max(gains) / 2)
    held = slowest[:count]
    gone = {timing.rank for timing in held}
    return Straggler(
        ranks=tuple(timing.rank for timing in held),
        rate=rate,
        without=rate + gain,
        own_s=held[0].own_s,
        others_own_s=max(timing.own_s for timing in timings if timing.rank not in gone),
    )


def rate_without(timings: Sequence[WorkerTiming], held: Sequence[WorkerTiming]) -> float:
    """Returns R' of the module's docstring, in samples/s."""
    gone = {timing.rank for timing in held}
    left = {timing.rank: timing for timing in timings if timing.rank not in gone}
    waiting = min(timing.waiting_s for timing in timings)
    anybody = latest([*left.values()])
    return sum(timing.samples / min(timing.step_s, _bound(timing, left, anybody) + waiting) for timing in left.values())


def _bound(timing: WorkerTiming, left: dict[int, WorkerTiming], anybody: float) -> float:
    """Returns when those are done that `timing` waits for, and itself."""
    if timing.waits_for is None:
        return anybody
    return latest([timing, *(left[rank] for rank in timing.waits_for if rank in left)])


def latest(timings: Sequence[WorkerTiming]) -> float:
    """Returns the mean of the largest of their own step times."""
    low = max(timing.own_s for timing in timings)
    # Who is done before that nearly always has no say in it.
    varying = [
        timing for timing in timings if timing.spread_s > 1e-3 * low and timing.own_s + 4 * timing.spread_s > low
    ]
    if len(varying) < 2:
        return low
    high = low + 5 * max(timing.spread_s for timing in varying)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        done = math.prod(0.5 * (1 + math.erf((middle - r.own_s) / (r.spread_s * math.sqrt(2)))) for r in varying)
        low, high = (middle, high) if done < ALL_DONE else (low, middle)
    return low
