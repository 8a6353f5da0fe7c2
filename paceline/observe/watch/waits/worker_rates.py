"""Measures one worker by its latest steps: sums over a window.

The window is the last WINDOW_S seconds of the run, or more where they hold fewer than ROUNDS_MIN exchanges, up to
WINDOW_MAX_S. It moves on by a second, since it is kept as the sums of single seconds.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import deque
from dataclasses import dataclass

from paceline.core.trace import Span

WINDOW_S, WINDOW_MAX_S = 10.0, 600.0
ROUNDS_MIN = 10
SPANS_KNOWN = 8
"""Steps from which on the first one, which is often many times as long, is left out."""
SLICE_S = 1.0
"""What is left out of the window at a time, and so by how much it may be longer."""
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

    def add(self, other: Sums) -> None:
        """Adds other sums to these."""
        self.seconds += other.seconds
        self.computing += other.computing
        self.communicating += other.communicating
        self.waiting += other.waiting
        self.steps += other.steps
        self.samples += other.samples
        self.exchanges += other.exchanges
        self.spans += other.spans
        self.squares += other.squares


class WorkerRates:
    """Measures worker `rank` since it joined. `at`: of its last record; `steps`, `samples`, `exchanges`: of all
    incarnations."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.device = self.host = ""
        self.here = True
        self.at = 0.0
        self.steps = self.samples = self.exchanges = 0
        self.latest = Sums()  # of the window
        self._slices: deque[Sums] = deque()
        self._first: Sums | None = None  # its first step, while that is in the window
        self.last_activity = ""
        self.stepped_at = self.pause_s = 0.0  # when its last step ended; the longest time lately between two such ends
        self._gap_s = 0.0
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
        passed = max(span.at - self.stepped_at, 0.0)
        self.stepped_at = span.at
        self.pause_s = max(passed, self.pause_s if len(self._slices) < 2 else 0.9 * self.pause_s)
        step = Sums(
            seconds=passed,
            computing=span.seconds,
            communicating=self._since["communicating"],
            waiting=self._since["waiting"],
            steps=span.steps,
            samples=span.samples,
            exchanges=span.exchanges,
            spans=1 if span.steps else 0,  # the last exchange of a run may be reported without a step
            squares=span.seconds**2 / max(span.steps, 1),
        )
        self._count(step)
        self.steps += span.steps
        self.samples += span.samples
        self.exchanges += span.exchanges
        self._since = dict.fromkeys(self._since, 0.0)
        if span.steps:
            self._steps_s.append(span.seconds / span.steps)
        self._gap_s += max(0.0, passed - span.seconds)
        if span.exchanges:
            self._gaps_s.append(self._gap_s / span.exchanges)
            self._gap_s = 0.0

    def _count(self, step: Sums) -> None:
        """Adds a step to the window, and drops the slices that it has moved past."""
        self.latest.add(step)
        if not self.steps:
            self._first = dataclasses.replace(step)
        if self._slices and self._slices[-1].seconds < SLICE_S:
            self._slices[-1].add(step)
        else:
            self._slices.append(step)
            self._move_on()
        if self._first is not None and self.latest.spans >= SPANS_KNOWN:
            self._forget_first(self._first)

    def _forget_first(self, first: Sums) -> None:
        """Leaves the first step out, as soon as others are known: caches are cold and memory is taken in it."""
        for sums in (self.latest, self._slices[0]):
            for field in dataclasses.fields(sums):
                setattr(sums, field.name, max(0.0, getattr(sums, field.name) - getattr(first, field.name)))
        self._first = None

    def _move_on(self) -> None:
        """Drops the oldest slices while what is left is long enough without them, and adds up the rest anew."""
        left, dropped = self.latest, False
        while len(self._slices) > 1:
            oldest = self._slices[0]
            seconds, exchanges = left.seconds - oldest.seconds, left.exchanges - oldest.exchanges
            if seconds < WINDOW_S or (left.exchanges > 0 and exchanges < ROUNDS_MIN and left.seconds < WINDOW_MAX_S):
                break
            self._slices.popleft()
            left, dropped = Sums(seconds=seconds, exchanges=exchanges), True
        if dropped:  # subtracting would leave the rounding errors of all that has passed
            self.latest = Sums()
            for sums in self._slices:
                self.latest.add(sums)

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
        """Returns the shares of its latest time: computing, communicating, waiting; all 0 before there is any. What is
        none of these, such as loading data, is the rest."""
        parts = self.latest.computing, self.latest.communicating, min(self.latest.waiting, self.latest.seconds)
        total = max(sum(parts), self.latest.seconds)
        return (parts[0] / total, parts[1] / total, parts[2] / total) if total else (0.0, 0.0, 0.0)
