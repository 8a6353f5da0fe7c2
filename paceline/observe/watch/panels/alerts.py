"""Alerts: what an operator should look at, said once when it begins and once when it is over.

    kind         when
    worker       the verdict (`watch/verdict.py`): workers hold the others up, or none finishes a step any more
    server       the verdict: a server is lost, or a server or link holds everybody up
    throughput   samples a second have fallen below FALLEN of what they were before
    loss         the loss is no number, or the model has collapsed
    stuck        in the newer half of the evaluations the loss has not become lower, nor the accuracy higher
    failed       the run has ended with an error

An alert begins when its cause has lasted HOLD_S seconds of the run, and is over when it has been absent as long: a
short stall says nothing. A loss that is no number, and a failed run, are told at once. Alerts that follow from the
verdict are over with it, since a verdict has waited as long: the page never shows one that its headline contradicts.
Nothing is said of a run that was over when the page was opened, or while an old trace is still being read.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from paceline.core.trace import Evaluated

HOLD_S = 5.0
AT_ONCE = ("loss", "failed")
"""Kinds that do not pass by themselves, so nothing is waited for."""
OF_VERDICT = ("worker", "server")
"""Kinds that follow from the verdict."""
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

    def look(self, now: float, causes: Mapping[str, str]) -> None:
        """Takes the causes of this moment of the run, by kind."""
        for kind, text in causes.items():
            since = self._since.setdefault(kind, now)
            self._absent.pop(kind, None)
            if kind in self.active:
                self.active[kind] = Alert(kind=kind, text=text, at=self.active[kind].at)
            elif now - since >= HOLD_S or kind in AT_ONCE:
                self.active[kind] = Alert(kind=kind, text=text, at=since)
                self._say(kind, begins=True)
        for kind in [kind for kind in self._since if kind not in causes]:
            if kind not in self.active:
                del self._since[kind]
            elif kind in OF_VERDICT or now - self._absent.setdefault(kind, now) >= HOLD_S:
                self._say(kind, begins=False)
                self._absent.pop(kind, None)
                del self._since[kind], self.active[kind]

    def _say(self, kind: str, *, begins: bool) -> None:
        """Calls the hook."""
        if self._hook is not None:
            self._hook(self.active[kind], begins)


class CommandHook:
    """Runs a command for each alert, on a thread of its own: a hook that hangs keeps nobody waiting.

    The last argument is the text. Its standard input is one line of JSON with kind, text, state, run and seconds;
    PACELINE_ALERT in its environment is the same.
    """

    def __init__(
        self,
        words: Sequence[str],
        run: Callable[[], str],
        failed: Callable[[str], None],
        *,
        seconds_max: float = HOOK_SECONDS,
    ) -> None:
        """`failed` is told, in a line, of a command that cannot be run, ends badly or takes `seconds_max`."""
        self._words, self._run, self._failed, self._seconds_max = list(words), run, failed, seconds_max

    def __call__(self, alert: Alert, begins: bool) -> None:
        threading.Thread(target=self.call, args=(alert, begins), name="alert hook", daemon=True).start()

    def call(self, alert: Alert, begins: bool) -> None:
        """Runs the command, and waits until it has ended or its time is over."""
        state = "begins" if begins else "over"
        told = {"kind": alert.kind, "text": alert.text, "state": state, "run": self._run(), "seconds": alert.at}
        text = alert.text if begins else f"over: {alert.text}"
        why = self._why_failed(text, json.dumps(told))
        if why:
            self._failed(f"--alert-hook {self._words[0]}: {why}")

    def _why_failed(self, text: str, line: str) -> str:
        """Runs the command with `text` and the JSON `line`; returns why it failed, or ""."""
        try:
            process = subprocess.Popen(
                [*self._words, text],
                env={**os.environ, "PACELINE_ALERT": line},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,  # so that what it starts ends with it
            )
        except (OSError, ValueError) as error:
            return str(error)
        with process:
            try:
                _, said = process.communicate(f"{line}\n".encode(), timeout=self._seconds_max)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                return f"was ended after {self._seconds_max:g} s"
        why = said.decode(errors="replace").strip().splitlines()[-1:]
        return f"exit code {process.returncode}{': ' + why[0] if why else ''}" if process.returncode else ""
