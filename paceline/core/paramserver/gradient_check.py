"""The gate of a server: which contributions are numbers that a model may be made of.

    not finite   refused, always: one NaN in an update is a model of NaNs
    wild         a norm above `factor` times the running median of all workers' norms: noted, or refused

The norm is the probe: it is read at the speed of memory, and it is not finite whenever one of the numbers is not. (Of
finite numbers whose squares overflow it is not either; they are refused too.) The median is over the last pushes of
everybody, so that one worker that is always wild does not become its own measure; it moves on when all norms do.

The gate sees what a server sees: a slice of the model. Each slice is judged by itself.

A worker that is refused again and again while the others are not is to be put out of the run (`Strikes`).
"""

from __future__ import annotations

import bisect
import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from paceline.core.errors import ConfigError, Diverged
from paceline.core.trace import Gated, Record

OFF, WARN, REJECT = "off", "warn", "reject"
JUDGED_FROM = 4
"""Norms that have to be known before one can be called wild."""
WINDOW_MIN = 64
STRIKES_OF = 100
"""Contributions of one worker among which its refused ones are counted."""
REFUSED_IN_A_ROW = 8
"""Pushes a worker, all refused, none accepted in between, after which nobody can believe in a passing fault."""


class Norm(Protocol):
    """The Euclidean length of `v`. onto: what it is about to be added to, which may share the pass, or None."""

    def __call__(self, v: Any, onto: Any, /) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientCheckPolicy:
    """`mode`: off lets everything pass, warn refuses what is not finite, reject what is wild, too.

    `strikes`: so many refused of its last STRIKES_OF contributions put a worker out of the run; 0: never.
    """

    mode: str = WARN
    factor: float = 3.0
    strikes: int = 10

    def __post_init__(self) -> None:
        if self.mode not in (OFF, WARN, REJECT):
            raise ConfigError(f"gate {self.mode!r}: there are off, warn and reject")
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
        """The gate of one slice; None where everything passes. expel: takes a rank to put out of the run, and why."""
        return None if self.mode == OFF else SliceGradientCheck(self, norm, workers, shard, note, expel)


@dataclass(frozen=True, slots=True)
class _Strike:
    """Contribution `number` of a worker was refused; of the others' had passed, and been refused, so many by then."""

    number: int
    passed: int
    refused: int


class Strikes:
    """Who is refused so often that it must be the machine: `most` times among its last STRIKES_OF contributions.

    What is refused of everybody is the model's fault, or the gate's, and no reason to put anybody out: since the first
    of those strikes more of what the others sent has to have passed than been refused.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._refused: Counter[int] = Counter()
        self._of: dict[int, deque[_Strike]] = {}

    def refused(self, rank: int, came: Counter[int]) -> str | None:
        """The newest of what `came` of worker `rank` was refused. Why it is to be put out, or None."""
        self._refused[rank] += 1
        refused = self._refused.total() - self._refused[rank]
        last = _Strike(came[rank], came.total() - came[rank] - refused, refused)
        strikes = self._of.setdefault(rank, deque(maxlen=self._most))
        strikes.append(last)
        first, of = strikes[0], last.number - strikes[0].number + 1
        if len(strikes) < self._most or of > STRIKES_OF or last.passed - first.passed <= refused - first.refused:
            return None
        strikes.clear()  # should it stay all the same, it is told again after as many more
        which = f"{self._most} of its last {of}" if of > self._most else f"all of its last {of}"
        return f"bad numbers: {which} contributions were refused"


class SliceGradientCheck:
    """The gate of one slice, which the trace knows as `shard`."""

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

    def push(self, now: float, rank: int, v: Any, onto: Any = None) -> str | None:
        """Why what worker `rank` has pushed does not count, or None. onto: what it is about to be added to.

        Raises Diverged once nobody's numbers are finite any more.
        """
        norm = self._norm(v, onto)
        if not math.isfinite(norm):
            return self._refuse(now, rank)
        self._passes(rank)
        median = self._sorted[len(self._sorted) // 2] if len(self._sorted) >= JUDGED_FROM else 0.0
        self._keep(norm)
        if not median or norm <= self._factor * median:
            return None
        reason = f"norm {norm:.3g}, {norm / median:.3g} times the running median of all workers"
        self._tell(now, rank, self._rejects, reason)
        return reason if self._rejects else None

    def part(self, now: float, rank: int, v: Any, onto: Any = None) -> str | None:
        """The same of a part of a mean, which is only asked to be finite: what is averaged is of many kinds."""
        if not math.isfinite(self._norm(v, onto)):
            return self._refuse(now, rank)
        self._passes(rank)
        return None

    def gone(self, rank: int) -> None:
        """Worker `rank` takes no further part: nobody waits for its numbers to find that the others have none."""
        self._gone.add(rank)
        self._in_a_row.pop(rank, None)

    def came(self, rank: int) -> None:
        """It takes part again."""
        self._gone.discard(rank)

    def _passes(self, rank: int) -> None:
        self._came[rank] += 1
        if self._in_a_row:
            self._in_a_row.clear()

    def _refuse(self, now: float, rank: int) -> str:
        self._came[rank] += 1
        self._in_a_row[rank] += 1
        reason = "not finite: it has NaN, infinity, or numbers whose squares overflow"
        self._tell(now, rank, True, reason)
        refused = self._in_a_row.total()
        workers = self._workers - len(self._gone)
        if refused >= REFUSED_IN_A_ROW * workers and self._in_a_row.keys() >= self._came.keys() - self._gone:
            raise Diverged(
                f"the model has diverged: server {self._shard} refused the last {refused} contributions, of every "
                f"worker, because none was finite (the last: number {self._came[rank]} of worker {rank}); lower --lr"
            )
        return reason

    def _keep(self, norm: float) -> None:
        self._last.append(norm)
        bisect.insort(self._sorted, norm)
        if len(self._last) > self._kept_at_most:
            del self._sorted[bisect.bisect_left(self._sorted, self._last.popleft())]

    def _tell(self, now: float, rank: int, refused: bool, reason: str) -> None:
        if self._note is not None:
            number = self._came[rank]
            self._note(Gated(at=now, shard=self._shard, rank=rank, number=number, refused=refused, reason=reason))
        if refused and self._strikes and (why := self._strikes.refused(rank, self._came)):
            assert self._expel is not None
            self._expel(rank, why)
