"""Checks on a server which contributions may go into the model.

    not finite   rejected, always: one NaN in an update makes the whole model NaN
    wild         a norm above `factor` times the running median of all workers' norms, and beyond their spread:
                 noted, or rejected

The check computes the norm alone: it reads at the speed of memory, and the norm is not finite whenever one of the
numbers is not. (Finite numbers whose squares overflow have no finite norm either; they are rejected too.) The median is
over the last pushes of everybody. So one worker that is always wild does not become its own measure, and the median
moves on when all norms do.

The spread is that of the logarithms in the same window: norms of rare tokens, or of the first steps, differ by more
than `factor` in a healthy run, and all of them together say how much. It is a median as well, of the distances from the
median, so a few liars do not widen it; where norms are alike it is zero, and `factor` alone counts. A worker is not
measured by its own norms: one that always lies would become its own measure.

The check sees what a server sees, a slice of the model. Each slice is judged by itself.

A worker that is rejected again and again while the others are not is to be expelled (`Strikes`).
"""

from __future__ import annotations

import bisect
import math
from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

from paceline.core.errors import ConfigError, Diverged
from paceline.core.trace import Gated, Record
from paceline.core.vector import NOT_FINITE

OFF, WARN, REJECT = "off", "warn", "reject"
"""Modes of the check: nothing is looked at, outliers are reported, outliers are rejected."""
JUDGED_FROM = 4
"""So many norms must be known before one can be called wild."""
SPREAD = 4.0
"""So many standard deviations of the norms' logarithms lie within their spread."""
PER_MEDIAN_DEVIATION = 1.4826
"""Standard deviations of a normal distribution in the median distance from its median."""
WINDOW_MIN = 64
STRIKES_OF = 100
"""A worker's rejected contributions are counted among its last so many."""
REFUSED_IN_A_ROW = 8
"""After so many pushes of each worker, all rejected and none accepted in between, the model has diverged."""


def bad_numbers(refused: int, of: int) -> str:
    """Returns why a worker is expelled, of whose last `of` contributions so many were rejected."""
    which = f"{refused} of its last {of}" if of > refused else f"all of its last {of}"
    return f"bad numbers: {which} contributions were refused"


class Norm(Protocol):
    """Returns the Euclidean length of `v`. onto: the vector it is about to be added to, which may
    share the pass, or None.
    """

    def __call__(self, v: Any, onto: Any, /) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientCheckPolicy:
    """`mode`: "off" accepts everything, "warn" rejects what is not finite, "reject" also what is wild.

    `factor`: how many times the median a norm may be. `strikes`: so many rejected of its last STRIKES_OF contributions
    expel a worker; 0: never. Raises ConfigError for another mode, and for a factor of 1 or less.
    """

    mode: str = WARN
    factor: float = 3.0
    strikes: int = 10

    def __post_init__(self) -> None:
        if self.mode not in (OFF, WARN, REJECT):
            raise ConfigError(f"gate {self.mode!r}: must be off, warn or reject")
        if not self.factor > 1:
            raise ConfigError(
                f"a gate factor of {self.factor:g} refuses half of all pushes: give one above 1, such as 3"
            )

    def gate(
        self,
        norm: Norm,
        workers: int,
        shard: int,
        note: Callable[[Record], None] | None,
        expel: Callable[[int, str], None] | None = None,
    ) -> SliceGradientCheck | None:
        """Returns the check of one slice; None where everything is accepted.

        expel: takes the rank of a worker to expel, and why.
        """
        return None if self.mode == OFF else SliceGradientCheck(self, norm, workers, shard, note, expel)


@dataclass(frozen=True, slots=True)
class _Strike:
    """Contribution `number` of a worker was rejected; by then so many of the others' had `passed`
    and been `refused`.
    """

    number: int
    passed: int
    refused: int


class Strikes:
    """Finds workers that are rejected so often that it must be their machine: `most` of their last STRIKES_OF
    contributions.

    If everybody's gradients are rejected, the model or the check is to blame, and nobody is expelled: since the first
    of those strikes more of what the others sent must have passed than been rejected. One that waits in an open round
    sends nothing more; it counts as one that has passed.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._refused: Counter[int] = Counter()
        self._of: dict[int, deque[_Strike]] = {}

    def refused(self, rank: int, came: Counter[int], waiting: int = 0) -> str | None:
        """Counts a strike: the newest of worker `rank`'s contributions was rejected. Returns why to expel it, or None.

        `came`: contributions judged so far, by rank. `waiting`: how many others wait for the round to be over.
        """
        self._refused[rank] += 1
        refused = self._refused.total() - self._refused[rank]
        last = _Strike(came[rank], came.total() - came[rank] - refused, refused)
        strikes = self._of.setdefault(rank, deque(maxlen=self._most))
        strikes.append(last)
        first, of = strikes[0], last.number - strikes[0].number + 1
        passed = last.passed - first.passed + waiting
        if len(strikes) < self._most or of > STRIKES_OF or passed <= refused - first.refused:
            return None
        strikes.clear()  # if the worker stays nevertheless, this is reported again after as many more
        return bad_numbers(self._most, of)


class SliceGradientCheck:
    """Checks one slice, which the trace knows as `shard`."""

    def __init__(
        self,
        policy: GradientCheckPolicy,
        norm: Norm,
        workers: int,
        shard: int,
        note: Callable[[Record], None] | None,
        expel: Callable[[int, str], None] | None = None,
    ) -> None:
        self._strikes = Strikes(policy.strikes) if policy.strikes and expel else None
        self._expel = expel
        self._rejects, self._factor = policy.mode == REJECT, policy.factor
        self._norm, self._shard, self._note = norm, shard, note
        self._workers = workers
        self._came: Counter[int] = Counter()  # contributions judged so far, by rank
        self._in_a_row: Counter[int] = Counter()  # those among them that were refused since one was not
        self._gone: set[int] = set()  # ranks that take no further part
        self._last: deque[float] = deque()
        self._sorted: list[float] = []  # the same norms
        self._kept_at_most = max(WINDOW_MIN, 4 * workers)

    def push(self, now: float, rank: int, v: Any, onto: Any = None, waiting: Collection[int] = ()) -> str | None:
        """Returns why the contribution `v` of worker `rank` is rejected, or None.

        onto: the vector it is about to be added to. waiting: ranks that send nothing more before its round is over.
        Raises Diverged once nobody's numbers are finite any more.
        """
        norm = self._norm(v, onto)
        if not math.isfinite(norm):
            return self._refuse(now, rank, waiting)
        self._passes(rank)
        median = self._sorted[len(self._sorted) // 2] if len(self._sorted) >= JUDGED_FROM else 0.0
        # Most norms need one comparison: the spread is looked at for those that the factor does not let pass.
        wild = bool(median) and norm > self._factor * median and norm > median * self._spread(median)
        self._keep(norm)
        if not wild:
            return None
        reason = f"norm {norm:.3g}, {norm / median:.3g} times the running median of all workers"
        self._tell(now, rank, self._rejects, reason, len(waiting))
        return reason if self._rejects else None

    def part(self, now: float, rank: int, v: Any, onto: Any = None) -> str | None:
        """Checks a part of a mean, which only has to be finite: quantities of many kinds are averaged, with norms of
        their own.
        """
        if not math.isfinite(self._norm(v, onto)):
            return self._refuse(now, rank)
        self._passes(rank)
        return None

    def gone(self, rank: int) -> None:
        """Worker `rank` takes no further part: the model counts as diverged without waiting for its numbers."""
        self._gone.add(rank)
        self._in_a_row.pop(rank, None)

    def came(self, rank: int) -> None:
        """Takes a worker in again."""
        self._gone.discard(rank)

    def _passes(self, rank: int) -> None:
        """Counts a contribution that passes: the model has not diverged, whoever was refused before."""
        self._came[rank] += 1
        if self._in_a_row:
            self._in_a_row.clear()

    def _refuse(self, now: float, rank: int, waiting: Collection[int] = ()) -> str:
        """Counts a contribution that is not finite.

        Raises Diverged if by now every worker's last ones were all rejected, but for those that wait for the others.
        """
        self._came[rank] += 1
        self._in_a_row[rank] += 1
        self._tell(now, rank, True, NOT_FINITE, len(waiting))
        refused = self._in_a_row.total()
        workers = self._workers - len(self._gone)
        sends = self._came.keys() - self._gone - set(waiting)
        one_alone = bool(waiting and self._strikes) and len(sends) == 1  # it is expelled, and the others go on
        if refused >= REFUSED_IN_A_ROW * workers and self._in_a_row.keys() >= sends and not one_alone:
            raise Diverged(
                f"the model has diverged: server {self._shard} refused the last {refused} contributions, of every "
                f"worker, because none was finite (the last: number {self._came[rank]} of worker {rank}); lower --lr"
            )
        return NOT_FINITE

    def _spread(self, median: float) -> float:
        """Returns how many times the median the largest norm is that the others' spread explains."""
        distances = sorted(abs(math.log(norm / median)) if norm else math.inf for norm in self._sorted)
        deviation = SPREAD * PER_MEDIAN_DEVIATION * distances[len(distances) // 2]
        return math.exp(min(deviation, 700.0))

    def _keep(self, norm: float) -> None:
        """Adds a norm to the window of the median, and drops the oldest one."""
        self._last.append(norm)
        bisect.insort(self._sorted, norm)
        if len(self._last) > self._kept_at_most:
            del self._sorted[bisect.bisect_left(self._sorted, self._last.popleft())]

    def _tell(self, now: float, rank: int, refused: bool, reason: str, waiting: int) -> None:
        """Writes the finding to the trace; a rejected contribution is a strike, which may expel the worker."""
        if self._note is not None:
            number = self._came[rank]
            self._note(Gated(at=now, shard=self._shard, rank=rank, number=number, refused=refused, reason=reason))
        if refused and self._strikes and (why := self._strikes.refused(rank, self._came, waiting)):
            assert self._expel is not None
            self._expel(rank, why)
