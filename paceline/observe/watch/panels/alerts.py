"""Alerts: what an operator should look at, said once when it begins and once when it is over.

    kind         when
    worker       workers hold the others up, and that costs ALERT_SHARE of the throughput or more
    server       a server is lost, or a server or link holds everybody up
    throughput   samples a second have fallen below FALLEN of what they were before
    loss         the loss is no number, or the model has collapsed
    stuck        in the newer half of the evaluations the loss has not become lower, nor the accuracy higher

An alert begins when its cause has lasted HOLD_S seconds of the run, and is over when it has been absent as long: a
short stall says nothing. Nothing is said of a run that is over, or while an old trace is still being read.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from paceline.core.errors import PacelineError
from paceline.core.trace import Evaluated

HOLD_S = 5.0
ALERT_SHARE = 0.2
FALLEN = 0.5
RECENT_S, BEFORE_S = 10.0, 20.0
"""Throughput of the last RECENT_S seconds is compared with what was before, once that is BEFORE_S seconds or more."""
STUCK_FROM = 12
"""Evaluations below which nothing is said of a loss that does not fall."""
BETTER = 0.002
"""Part of a loss, or of 1 for an accuracy, by which the newer half must be better."""
HOOK_SECONDS = 30.0
"""Time that a hook may take; then it is killed."""

Hook = Callable[["Alert", bool], None]
"""Is called with an alert: True when it begins, False when it is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Says what is wrong since `at`, in seconds of the run."""

    kind: str
    text: str
    at: float


def fallen_throughput(rates: Sequence[float], width_s: float) -> str:
    """Returns by how much samples a second have fallen, or "". `rates`: of bins of `width_s` seconds each."""
    recent = max(1, round(RECENT_S / width_s)) if width_s > 0 else 0
    before = rates[:-recent] if recent else []
    if len(before) * width_s < BEFORE_S:
        return ""
    usual, now = statistics.median(before), statistics.fmean(rates[-recent:])
    if usual <= 0 or now >= FALLEN * usual:
        return ""
    return f"Throughput has fallen to {now:,.0f} samples/s; it was {usual:,.0f}."


def stuck(evaluations: Sequence[Evaluated]) -> str:
    """Returns since when the model has not become better, or ""."""
    if len(evaluations) < STUCK_FROM:
        return ""
    middle = len(evaluations) // 2
    older, newer = evaluations[:middle], evaluations[middle:]
    losses = [[e.loss for e in part if math.isfinite(e.loss) and e.loss > 0] for part in (older, newer)]
    accuracies = [max(e.accuracy for e in part) for part in (older, newer)]
    if accuracies[1] > accuracies[0] + BETTER or accuracies[1] > 1 - BETTER:
        return ""
    if not all(losses) or min(losses[1]) < min(losses[0]) * (1 - BETTER):
        return ""
    return f"The model has not become better since {newer[0].at:.0f} s: its lowest loss is {min(losses[0]):.4g}."


class AlertWatch:
    """Decides which causes are alerts, by how long they last; `hook` hears of each once when it begins and ends."""

    def __init__(self, hook: Hook | None = None) -> None:
        self._hook = hook
        self._since: dict[str, float] = {}
        self._absent: dict[str, float] = {}
        self.active: dict[str, Alert] = {}

    def look(self, now: float, causes: Mapping[str, str], *, tells: bool = True) -> None:
        """Takes the causes of this moment of the run, by kind. `tells`: whether the hook hears of what follows."""
        for kind, text in causes.items():
            since = self._since.setdefault(kind, now)
            self._absent.pop(kind, None)
            if kind in self.active:
                self.active[kind] = Alert(kind=kind, text=text, at=self.active[kind].at)
            elif now - since >= HOLD_S or kind == "loss":
                self.active[kind] = Alert(kind=kind, text=text, at=since)
                self._say(kind, begins=True, tells=tells)
        for kind in [kind for kind in self._since if kind not in causes]:
            if kind not in self.active:
                del self._since[kind]
            elif now - self._absent.setdefault(kind, now) >= HOLD_S:
                self._say(kind, begins=False, tells=tells)
                del self._since[kind], self._absent[kind], self.active[kind]

    def _say(self, kind: str, *, begins: bool, tells: bool) -> None:
        """Calls the hook."""
        if self._hook is not None and tells:
            self._hook(self.active[kind], begins)


class CommandHook:
    """Runs a command for each alert, on a thread of its own: a hook that hangs keeps nobody waiting.

    The last argument is the text. PACELINE_ALERT has kind, text, state, run and seconds, as JSON.
    """

    def __init__(self, words: Sequence[str], run: Callable[[], str], failed: Callable[[str], None]) -> None:
        """`failed` is told, in a line, of a command that cannot be run or ends badly."""
        self._words, self._run, self._failed = list(words), run, failed

    def __call__(self, alert: Alert, begins: bool) -> None:
        threading.Thread(target=self.call, args=(alert, begins), name="alert hook", daemon=True).start()

    def call(self, alert: Alert, begins: bool) -> None:
        """Runs the command, and waits until it has ended or its time is over."""
        state = "begins" if begins else "over"
        told = {"kind": alert.kind, "text": alert.text, "state": state, "run": self._run(), "seconds": alert.at}
        text = alert.text if begins else f"over: {alert.text}"
        try:
            ended = subprocess.run(
                [*self._words, text],
                env={**os.environ, "PACELINE_ALERT": json.dumps(told)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=HOOK_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired, PacelineError) as error:
            self._failed(f"--alert-hook {self._words[0]}: {error}")
        else:
            if ended.returncode:
                why = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
                self._failed(
                    f"--alert-hook {self._words[0]}: exit code {ended.returncode}{': ' + why[0] if why else ''}"
                )
