"""Finds out whether the exchange holds everybody up: servers that answer late, or links on which bytes take long.

A step of worker i takes p_i seconds, c_i of them sending and receiving. Some of its waiting is for other workers, which
are slower in the mean or come last by chance (`straggler.py`). The rest of it, and c_i, go into the exchange. Everybody
is held up by it where that is at least SHARE of p_i for every i, also the one that loses least. A single worker whose
bytes take long where those of the others do not has a slow link.

Example: 3 workers that compute for 100, 100 and 110 ms, all with c = 20 ms, and wait for 130, 130 and 120 ms. Of these
the first two wait 10 ms for the third. So the exchange takes 140 ms of steps of 250 ms: more than half for each, and
the servers or their links are named.

Of several servers each makes every update of its part of the model. Those that make it later than the first one, by
LATER of what the exchange takes, hold the others up, or their links do.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.observe.watch.waits.straggler import WaitShares, WorkerTiming
from paceline.observe.watch.waits.worker_rates import WorkerRates

SHARE = 0.5
"""Fraction of a step: an exchange that takes less is no bottleneck."""
SPANS_MIN = 3.0
"""Steps in a worker's sums below which nothing is said."""
TIMES = 3.0
"""A link is slow where bytes take so many times as long as on the others' links."""


LATER = 0.1
"""Of the exchange: half of the way to a far server and back is over when it makes its update, and where a link is thin
just the last push, while the answers to all go the same way."""
VERSIONS_KEPT = 256
"""Versions that some server has not made yet, of which the times are kept."""
FORGETS = 0.1
"""Weight of the newest delay in the mean."""


class ServerLags:
    """Measures how much later than the first each server makes an update: `late_s`, a mean that forgets, in seconds."""

    def __init__(self) -> None:
        self.late_s: dict[int, float] = {}
        self._made: dict[int, dict[int, float]] = {}  # when, by version and server, until all have made it

    def add(self, server: int, version: int, at: float) -> None:
        """Notes that a server has made a version; the last server of a version completes its measurement."""
        self.late_s.setdefault(server, 0.0)
        made = self._made.setdefault(version, {})
        made[server] = at
        if len(made) < len(self.late_s):
            if len(self._made) > VERSIONS_KEPT:
                del self._made[min(self._made)]
            return
        del self._made[version]
        first = min(made.values())
        for one, when in made.items():
            self.late_s[one] += FORGETS * (when - first - self.late_s[one])

    def latest(self, least_s: float) -> list[int]:
        """Returns servers later by `least_s` and TIMES as much as the others, the latest first; [] where all are as
        late."""
        late = [server for server, seconds in self.late_s.items() if seconds >= least_s > 0]
        others = [seconds for server, seconds in self.late_s.items() if server not in late]
        late = [server for server in late if others and self.late_s[server] >= TIMES * max(others)]
        return sorted(late, key=lambda server: -self.late_s[server])


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """Describes the exchange of worker `rank`, which loses least by it.

    exchange_s: seconds a step that the exchange takes; bytes_s: of these, bytes moved; step_s: all of the step.
    """

    rank: int
    exchange_s: float
    bytes_s: float
    step_s: float

    @property
    def share(self) -> float:
        """Returns the fraction of the step that the exchange takes."""
        return self.exchange_s / self.step_s

    @property
    def waiting_s(self) -> float:
        """Returns the seconds of the exchange in which nothing of this worker's moved."""
        return max(0.0, self.exchange_s - self.bytes_s)


def bottleneck(timings: Sequence[WorkerTiming], shares: Mapping[int, WaitShares]) -> Bottleneck:
    """Returns the exchange of the worker that loses least by it. `timings`: at least one, of steps that took some
    time."""
    found = [
        Bottleneck(
            rank=timing.rank,
            exchange_s=shares[timing.rank].exchange * timing.step_s + timing.moving_s,
            bytes_s=timing.moving_s,
            step_s=timing.step_s,
        )
        for timing in timings
    ]
    return min(found, key=lambda one: one.share)


def slow_links(workers: Sequence[WorkerRates]) -> list[WorkerRates]:
    """Returns workers whose bytes take TIMES as long as the median worker's, and SHARE of their own step; the slowest
    first."""
    known = [worker for worker in workers if worker.here and worker.latest.spans >= SPANS_MIN]
    if len(known) < 2:
        return []
    usual = statistics.median_low([communicating_s(worker) for worker in known])
    slow = [
        worker
        for worker in known
        if communicating_s(worker) > TIMES * usual and communicating_s(worker) >= SHARE * (worker.own_s or 1.0)
    ]
    return sorted(slow, key=communicating_s, reverse=True)


def communicating_s(worker: WorkerRates) -> float:
    """Returns the seconds a step in which the worker sent and received, and did nothing else."""
    return worker.latest.communicating / worker.latest.steps if worker.latest.steps else 0.0
