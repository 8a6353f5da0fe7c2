"""Decides what the workers of a run wait for: once, for the headline, its alert, the rows and the forecast.

    kind       when                                                                     alert
    begun      too little is known: before ROUNDS_MIN exchanges and BEGUN_S seconds
    lost       a server is lost and not replaced yet                                    server
    stall      no worker has finished a step for long                                   worker
    workers    some workers are slower, and the others would gain without them          worker, if it is grave
    uneven     as much is waited for slower workers, but no few of them are the reason
    turns      the steps vary, and whoever comes last by chance is waited for
    exchange   servers, their links, or the exchange among the workers take the time    server, if it is grave
    nobody     the workers wait for less than MEAN of their time, and nobody for MOST

What is waited for is divided among slower workers, chance and the exchange (`straggler.wait_shares`), and the largest
part is the verdict. So wherever much is waited, something is named. All of it is over the window of
`worker_rates.WINDOW_S`.

A verdict that names something begins at once. It ends when something else has been found for HOLD_S seconds of the
run, and what is found already needs less to go on (GOES_ON). Facts of the trace end it at once: a worker or server
that is lost or comes, or a stall that is over.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from paceline.observe.watch.waits.bottleneck import SHARE, Bottleneck, bottleneck
from paceline.observe.watch.waits.straggler import (
    Straggler,
    WaitShares,
    WorkerTiming,
    straggler,
    straggler_of,
    wait_shares,
)
from paceline.observe.watch.waits.worker_rates import ROUNDS_MIN, WorkerRates

Kind = Literal["begun", "lost", "stall", "workers", "uneven", "turns", "exchange", "nobody"]
MEAN, MOST = 0.2, 0.4
"""Shares of its time that the mean worker, or any worker, waits: below both the verdict is `nobody`."""
LEAST = 0.3
"""The share of its time that the exchange takes the worker that loses least by it: it is named from here on, and is an
alert from SHARE on."""
GRAVE = 0.2
"""What the others wait for stragglers, as a share of their time: from here on it is an alert."""
CHANCE = 0.5
"""What waiting by chance counts beside waiting for workers that are slower in the mean."""
GOES_ON = 0.8
"""Part of each of these from which on a verdict that is found already goes on."""
HOLD_S = 5.0
BEGUN_S, SPANS_MIN = 10.0, 3
STALL_S, STALL_PAUSES = 5.0, 5.0
"""No worker has finished a step for STALL_S seconds, and so many times the longest pause between two lately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitVerdict:
    """Says what the workers wait for, since when by the run's clock, and over how many seconds that was measured.

    waited      the share of its time that the mean worker waited; of `workers` that of the others, for them
    most        the worker that waited most, and its share
    straggler   of the kind `workers`; bottleneck: of the kind `exchange`
    stalled     of the kind `stall`: those that are waited for, where that is known; since: of the last step
    """

    kind: Kind
    since: float = 0.0
    grave: bool = False
    waited: float = 0.0
    most: tuple[int, float] = (0, 0.0)
    window_s: float = 0.0
    straggler: Straggler | None = None
    bottleneck: Bottleneck | None = None
    stalled: tuple[int, ...] = ()

    @property
    def ranks(self) -> tuple[int, ...]:
        """Returns the workers that hold the others up, the slowest first."""
        return self.straggler.ranks if self.straggler else self.stalled

    @property
    def alert(self) -> str:
        """Returns the kind of alert that this is; "" if it is none."""
        if not self.grave:
            return ""
        return "server" if self.kind in ("lost", "exchange") else "worker"

    @property
    def names_something(self) -> bool:
        """Returns True if it names what is waited for."""
        return self.kind not in ("begun", "nobody")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Holds what a verdict is made of: times and shares of the workers that take part, and the exchange."""

    timings: Sequence[WorkerTiming]
    shares: Mapping[int, WaitShares]
    bottleneck: Bottleneck
    window_s: float

    @classmethod
    def of(cls, workers: Sequence[WorkerRates], timings: Sequence[WorkerTiming]) -> Evidence | None:
        """Returns the evidence; None where no worker has made a step."""
        timings = [timing for timing in timings if timing.step_s > 0]
        if not timings:
            return None
        shares = wait_shares(timings)
        return cls(
            timings=timings,
            shares=shares,
            bottleneck=bottleneck(timings, shares),
            window_s=statistics.median(workers[timing.rank].latest.seconds for timing in timings),
        )

    def is_enough(self, workers: Sequence[WorkerRates], now: float) -> bool:
        """Returns True if as many exchanges or seconds have passed as a verdict needs."""
        latest = [workers[timing.rank].latest for timing in self.timings]
        if min(sums.exchanges for sums in latest) >= ROUNDS_MIN:
            return True
        return now >= BEGUN_S and min(sums.spans for sums in latest) >= SPANS_MIN

    def found(self, before: WaitVerdict) -> WaitVerdict:
        """Returns what the workers wait for; `before`: the verdict until now, which goes on with less."""
        named = straggler(self.timings)
        kind = self._kind(named, GOES_ON if before.names_something else 1.0)
        # Those that were named go on to be named while that explains as much: one more or less is not worth a change.
        if kind == before.kind == "workers" and self._is_as_good(before.ranks, named):
            return self.again(before)
        return self._verdict(kind, named, before)

    def again(self, before: WaitVerdict) -> WaitVerdict:
        """Returns the same verdict with the figures of now."""
        named = None
        if before.kind == "workers":
            here = {timing.rank for timing in self.timings}
            named = straggler_of(self.timings, [rank for rank in before.ranks if rank in here])
        return self._verdict(before.kind, named, before)

    def _kind(self, named: Straggler | None, part: float) -> Kind:
        """Returns what most is waited for, if enough is waited; `part`: of the bounds."""
        shares = self.shares.values()
        waited = statistics.fmean(share.waited for share in shares)
        most = max(share.waited for share in shares)
        exchange = self.bottleneck.share >= LEAST * part
        if not (waited >= MEAN * part or most >= MOST * part or exchange or named):
            return "nobody"
        parts: dict[Kind, float] = {
            "workers" if named else "uneven": self._later(named),
            # Chance is reckoned from a spread in which one long step counts much, so it has to be more by far.
            "turns": statistics.fmean(share.chance for share in shares) * (CHANCE if named else 1.0),
            "exchange": max(
                statistics.fmean(share.exchange for share in shares), self.bottleneck.share if exchange else 0.0
            ),
        }
        return max(parts, key=lambda kind: parts[kind])

    def _later(self, named: Straggler | None) -> float:
        """Returns the share of its time that the mean worker waits for slower ones; of those that are not named."""
        named_ranks = named.ranks if named else ()
        return statistics.fmean(share.later for rank, share in self.shares.items() if rank not in named_ranks)

    def _is_as_good(self, ranks: Sequence[int], named: Straggler | None) -> bool:
        """Returns True if the others would gain nearly as much without `ranks` as without those that are found now."""
        here = {timing.rank for timing in self.timings}
        if named is None or not here.issuperset(ranks) or len(ranks) > len(named.ranks):
            return False
        return straggler_of(self.timings, ranks).gain - 1 >= GOES_ON * (named.gain - 1)

    def _verdict(self, kind: Kind, named: Straggler | None, before: WaitVerdict) -> WaitVerdict:
        """Returns a verdict of that kind with the figures of now."""
        shares = self.shares
        part = GOES_ON if before.kind == kind and before.grave else 1.0
        waited = statistics.fmean(share.waited for share in shares.values())
        grave = kind == "exchange" and self.bottleneck.share >= SHARE * part
        if kind == "workers" and named:
            waited = self._later(named)
            grave = waited >= GRAVE * part
        most = max(shares, key=lambda rank: shares[rank].waited)
        return WaitVerdict(
            kind=kind,
            grave=grave,
            waited=waited,
            most=(most, shares[most].waited),
            window_s=self.window_s,
            straggler=named if kind == "workers" else None,
            bottleneck=self.bottleneck if kind == "exchange" else None,
        )


def is_same(one: WaitVerdict, other: WaitVerdict) -> bool:
    """Returns True if both say the same, with other figures perhaps."""
    return (one.kind, sorted(one.ranks), one.grave) == (other.kind, sorted(other.ranks), other.grave)


class Judgement:
    """Keeps the verdict of a run while its evidence changes."""

    def __init__(self) -> None:
        self.verdict = WaitVerdict(kind="begun")
        self._missed_since: float | None = None  # when the verdict was last found, if it is not found now

    def look(self, now: float, evidence: Evidence | None, *, enough: bool, afresh: bool = False) -> None:
        """Takes the evidence of `now`, in seconds of the run. afresh: somebody has come or gone, so what was found
        before does not go on."""
        before = self.verdict
        is_named = before.kind in ("workers", "uneven", "turns", "exchange")
        if evidence is None or not (enough or is_named or before.kind == "nobody"):
            self.settle(WaitVerdict(kind="begun", since=now))
            return
        found = evidence.found(WaitVerdict(kind="nobody") if afresh else before)
        if is_same(found, before):
            found = evidence.again(before)  # with the workers in the order in which they were named
            self.verdict, self._missed_since = replace(found, since=before.since), None
            return
        if self._missed_since is None:
            self._missed_since = now
        if is_named and not afresh and now - self._missed_since < HOLD_S:
            again = evidence.again(before)
            self.verdict = replace(again, since=before.since, grave=before.grave)
        else:
            self.settle(replace(found, since=now))

    def settle(self, verdict: WaitVerdict) -> None:
        """Takes a verdict that follows from a fact, at once; one that says the same goes on."""
        if is_same(verdict, self.verdict):
            verdict = replace(verdict, since=self.verdict.since)
        self.verdict, self._missed_since = verdict, None
