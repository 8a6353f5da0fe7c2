"""Measures one worker by its latest steps: sums that forget.

With every step what was before counts exp(-t / 2.5 s) as much, t being the time since the step before, but never
less than 0.8: so a change shows within seconds, and a worker of slow steps is judged by its last five.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass

from paceline.core.trace import Span

FORGET_S = 2.5
KEPT_MIN = 0.8
RECENT = 15
"""Steps of which medians are taken: an outage in fewer than half of them changes nothing."""
ACTIVITIES = ("computing", "communicating", "waiting")
"""What a worker's time goes to."""


@dataclass(slots=True)
class Sums:
    """Sums up the latest steps: seconds of the clock and of each activity, and what was done in them."""

    seconds: float = 0.0
    computing: float = 0.0
    communicating: float = 0.0
    waiting: float = 0.0
    steps: float = 0.0
    samples: float = 0.0
    exchanges: float = 0.0
    spans: float = 0.0  # of computing, each of one step or more
    squares: float = 0.0  # of the seconds of a step, each times its steps

    def forget(self, kept: float) -> None:
        """Multiplies every sum by `kept`."""
        self.seconds *= kept
        self.computing *= kept
        self.communicating *= kept
        self.waiting *= kept
        self.steps *= kept
        self.samples *= kept
        self.exchanges *= kept
        self.spans *= kept
        self.squares *= kept


class WorkerRates:
    """Measures worker `rank` since it joined. `at`: of its last record; `steps`, `samples`: of all incarnations."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.device = self.host = ""
        self.here = True
        self.at = 0.0
        self.steps = self.samples = 0
        self.latest = Sums()
        self.last_activity = ""
        self._stepped_at = self._gap_s = 0.0
        self._steps_s: deque[float] = deque(maxlen=RECENT)
        self._gaps_s: deque[float] = deque(maxlen=RECENT)
        self._since = {"communicating": 0.0, "waiting": 0.0}

    def add(self, span: Span) -> None:
        """Adds a span. What is not computing is kept until the step that ends it is reported."""
        if span.activity not in ACTIVITIES:
            return
        self.at = max(self.at, span.at)
        self.last_activity = span.activity
        if span.activity == "computing":
            self._step(span)
        else:
            self._since[span.activity] += span.seconds

    def _step(self, span: Span) -> None:
        """Counts a step. What lay between it and the one before belongs to the time that passed since then, and to no
        other."""
        latest, passed = self.latest, max(span.at - self._stepped_at, 0.0)
        self._stepped_at = span.at
        latest.forget(max(math.exp(-passed / FORGET_S), KEPT_MIN))
        latest.seconds += passed
        latest.computing += span.seconds
        latest.communicating += self._since["communicating"]
        latest.waiting += self._since["waiting"]
        latest.steps += span.steps
        latest.samples += span.samples
        latest.exchanges += span.exchanges
        latest.spans += 1
        latest.squares += span.seconds**2 / max(span.steps, 1)
        self.steps += span.steps
        self.samples += span.samples
        self._since = dict.fromkeys(self._since, 0.0)
        self._steps_s.append(span.seconds / max(span.steps, 1))
        self._gap_s += max(0.0, passed - span.seconds)
        if span.exchanges:
            self._gaps_s.append(self._gap_s / span.exchanges)
            self._gap_s = 0.0

    @property
    def usual_step_s(self) -> float:
        """Returns the median of the latest steps' computing."""
        return statistics.median(self._steps_s) if self._steps_s else 0.0

    @property
    def usual_spread_s(self) -> float:
        """Returns a standard deviation of the latest steps that outliers do not move: the median deviation, scaled
        (normal)."""
        usual = self.usual_step_s
        return 1.4826 * statistics.median(abs(step_s - usual) for step_s in self._steps_s) if self._steps_s else 0.0

    @property
    def usual_exchange_s(self) -> float:
        """Returns the median of what an exchange cost beside computing."""
        return statistics.median(self._gaps_s) if self._gaps_s else 0.0

    @property
    def step_s(self) -> float:
        """Returns the seconds of computing a step; it is 0 before the first."""
        return self.latest.computing / self.latest.steps if self.latest.steps else 0.0

    @property
    def spread_s(self) -> float:
        """Returns the standard deviation of `step_s`, as a mean over a round, from one round to the next."""
        steps = self.latest.steps
        variance = self.latest.squares / steps - self.step_s**2 if steps else 0.0
        return math.sqrt(max(variance, 0.0) * min(1.0, self.latest.exchanges / self.latest.spans)) if steps else 0.0

    @property
    def waiting_s(self) -> float:
        """Returns the seconds of waiting a step."""
        return min(self.latest.waiting, self.latest.seconds) / self.latest.steps if self.latest.steps else 0.0

    @property
    def own_s(self) -> float:
        """Returns the seconds a step that are not waiting: what this worker needs if nobody holds it up."""
        return max(self.latest.seconds / self.latest.steps - self.waiting_s, 0.0) if self.latest.steps else 0.0

    @property
    def samples_per_second(self) -> float:
        """Returns the throughput of the latest steps."""
        return self.latest.samples / self.latest.seconds if self.latest.seconds else 0.0

    @property
    def steps_a_round(self) -> float | None:
        """Returns local steps from one exchange to the next; None before there was one."""
        return self.latest.steps / self.latest.exchanges if self.latest.exchanges else None

    def shares(self) -> tuple[float, float, float]:
        """Returns the shares of its latest time: computing, communicating, waiting; all 0 before there is any."""
        parts = self.latest.computing, self.latest.communicating, self.latest.waiting
        total = sum(parts)
        return (parts[0] / total, parts[1] / total, parts[2] / total) if total else (0.0, 0.0, 0.0)
