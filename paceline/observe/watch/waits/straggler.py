"""Finds out which workers the others wait for, and what the others would do without them.

A step of worker i takes p_i = e_i + c_i + w_i seconds: e_i its own, c_i sending and receiving, w_i waiting. Bytes that
take long on a link of its own alone are its own time. Some of that would be with nobody to wait for: w = min (c_i +
w_i), which even the one has who comes last. Without the workers S worker i would wait for the slowest of those that are
left of whom it waits for,

    p'_i = min(p_i, M_i + w)              M_i: mean of max(e_j) over j: i, and those it waits for, all but S

and so the others would do R' = sum(n_i / p'_i) samples a second, i not in S, where they now do R = sum(n_i / p_i).
R' / R is what S costs them. It is 1 where nobody waits for S: an asynchronous worker costs the others nothing, however
slow it is. S are the slowest by e_i, at most half of all, and as few as account for half of what any number of them
costs.

Example (BSP, 32 samples a step): e = 10, 10, 40 ms, so every step takes 40 ms and the two others do R = 64 / 0.04 =
1,600 samples/s. Without the slow worker they would need 10 ms: R' = 64 / 0.01 = 6,400, four times as much.

What worker i waits is of three kinds (`wait_shares`). It waits for workers that are slower in the mean,

    later_i = max e_j - e_i               over j: i, and those it waits for

for whoever comes last by chance, M_i - e_i - later_i with nobody left out of M_i, and for the exchange: the rest.

Steps vary, and whoever waits for several waits for the slowest each time; M is therefore more than the largest mean.
With e_j normal it is taken where the probability that all are done is exp(-exp(-gamma)), as at the mean of a Gumbel
distribution, which is what the largest of many comes to (Fisher and Tippett 1928).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

WORTH = 0.1
"""What the others would gain without stragglers, as a part of what they do: less is not worth a name."""
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)
"""How many of the slowest may hold the others up together."""
BISECTIONS = 10
"""Halvings by which the mean of the largest is found: to a thousandth of the range."""
ALL_DONE = math.exp(-math.exp(-0.5772156649))
"""The probability that a Gumbel variable is below its mean; 0.577... is Euler's gamma."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTiming:
    """Holds one worker's times, by its latest steps: seconds a step of its own and of waiting, samples a step.

    moving_s: seconds of sending and receiving, but for what is its own. spread_s: standard deviation of own_s.
    waits_for: ranks, where the trace names them, none of them where it waits for no worker; None where it may be
    anybody.
    """

    rank: int
    own_s: float
    waiting_s: float
    samples: float
    moving_s: float = 0.0
    spread_s: float = 0.0
    waits_for: frozenset[int] | None = None

    @property
    def step_s(self) -> float:
        """Returns the seconds of a step, with what the worker waits for others."""
        return self.own_s + self.moving_s + self.waiting_s

    @property
    def exchange_s(self) -> float:
        """Returns the seconds of a step that it does not work, for whatever reason."""
        return self.moving_s + self.waiting_s


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitShares:
    """Divides the waiting of one worker, each part as a share of its time.

    later: for workers that are slower in the mean; chance: for whoever comes last by chance; exchange: the rest
    """

    later: float
    chance: float
    exchange: float

    @property
    def waited(self) -> float:
        """Returns the share of its time that the worker waited."""
        return self.later + self.chance + self.exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """Says that `ranks` hold the others up; the slowest came first when they were found.

    Rates in samples/s: `rate` of all as it is, `others` of those that are not in `ranks` as it is, and `without` of the
    same without `ranks`. own_s: of the slowest of them; others_own_s: of the slowest other.
    """

    ranks: tuple[int, ...]
    rate: float
    others: float
    without: float
    own_s: float
    others_own_s: float

    @property
    def gain(self) -> float:
        """Returns how many times as much the others would do."""
        return self.without / self.others

    @property
    def cost(self) -> float:
        """Returns the samples per second that the others would do more than all do now; negative where they are worth
        what they cost."""
        return self.without - self.rate


def straggler(timings: Sequence[WorkerTiming]) -> Straggler | None:
    """Returns who holds the others up; None where the others would gain less than WORTH without anybody."""
    timings = [timing for timing in timings if timing.step_s > 0]
    if len(timings) < 2:
        return None
    counts = [count for count in COUNTS if count <= len(timings) / 2]
    slowest = heapq.nlargest(counts[-1], timings, key=lambda timing: timing.own_s)
    found = [straggler_of(timings, [timing.rank for timing in slowest[:count]]) for count in counts]
    most = max(one.gain for one in found) - 1
    if most < WORTH:
        return None
    return next(one for one in found if one.gain - 1 >= most / 2)


def straggler_of(timings: Sequence[WorkerTiming], ranks: Sequence[int]) -> Straggler:
    """Returns what `ranks` cost the others, whether or not that is worth a name."""
    known = {timing.rank: timing for timing in timings}
    held = [known[rank] for rank in ranks]
    others = [timing for timing in timings if timing.rank not in ranks]
    return Straggler(
        ranks=tuple(ranks),
        rate=sum(timing.samples / timing.step_s for timing in timings),
        others=sum(timing.samples / timing.step_s for timing in others),
        without=rate_without(timings, held),
        own_s=max(timing.own_s for timing in held),
        others_own_s=max(timing.own_s for timing in others),
    )


def rate_without(timings: Sequence[WorkerTiming], held: Sequence[WorkerTiming]) -> float:
    """Returns R' of the module's docstring, in samples/s."""
    gone = {timing.rank for timing in held}
    left = {timing.rank: timing for timing in timings if timing.rank not in gone}
    waiting = min(timing.exchange_s for timing in timings)
    anybody = latest([*left.values()])
    return sum(timing.samples / min(timing.step_s, _bound(timing, left, anybody) + waiting) for timing in left.values())


def wait_shares(timings: Sequence[WorkerTiming]) -> dict[int, WaitShares]:
    """Returns what each worker waits for, by rank. `timings`: of steps that took some time."""
    known = {timing.rank: timing for timing in timings}
    least = min((timing.exchange_s for timing in timings), default=0.0)
    anybody = latest(timings) if timings else 0.0
    slowest = max((timing.own_s for timing in timings), default=0.0)
    found = {}
    for timing in timings:
        last = slowest
        if timing.waits_for is not None:
            last = max((known[rank].own_s for rank in timing.waits_for if rank in known), default=0.0)
        later = max(0.0, min(last - timing.own_s, timing.waiting_s, timing.exchange_s - least))
        chance = 0.0
        if timing.waits_for is None or timing.waits_for:
            bound = _bound(timing, known, anybody) - timing.own_s
            chance = max(0.0, min(bound - max(0.0, last - timing.own_s), timing.waiting_s - later))
        exchange = timing.waiting_s - later - chance
        found[timing.rank] = WaitShares(
            later=later / timing.step_s, chance=chance / timing.step_s, exchange=exchange / timing.step_s
        )
    return found


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
