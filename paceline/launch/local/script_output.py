"""Sends what scripts print to the terminal, behind the name of its party, and to a log for each party.

Forty workers of one script warn forty times in the same words. So a line in the form of Python's warnings is held
back for HOLD_SECONDS, and is shown once for all workers that have printed it by then:

    [workers 0-39] train.py:12: UserWarning: 100 batches without pace.step()

Logs have every line of everybody. Beside that output a terminal shows who is lost or is back (`Losses`).
"""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paceline.core.coordination.party import Party
from paceline.core.files.safe_path import safe_join
from paceline.observe.formatting.number_format import ranks_text
from paceline.observe.terminal.progress import Lines, ProgressSnapshot
from paceline.runtime.spec.core_binding import CORES
from paceline.runtime.spec.rate_scale import RATE

HOLD_SECONDS = 0.5
"""Seconds that a warning is held back."""
WARNING = re.compile(r":\d+: \w*Warning: ")
"""The form of a warning: `train.py:12: UserWarning: ...`; the source line may follow, behind two blanks."""


@dataclass(slots=True)
class _Warning:
    """Holds a warning. `who`: all that have printed it, as they are shown; `source`: the line of code under it,
    or ""."""

    who: dict[str, Party] = field(default_factory=dict)
    source: str = ""


class Output:
    """Takes each line that a party prints, from any thread. `quiet`: only the logs have them."""

    def __init__(self, out: str, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._logs = Path(out) / "logs"
        self._lock = threading.Lock()
        self._held: dict[str, _Warning] = {}
        self._last: dict[str, str] = {}  # by party: the warning under which its next line may be the source
        self._timer: threading.Timer | None = None

    def __call__(self, party: str, line: str) -> None:
        """Logs and shows a line. `party` may have its host behind it, in brackets."""
        who = Party.parse(party.partition(" (")[0])
        with self._lock:
            self._log(who, line)
            if not self._quiet and not self._hold(party, who, line):
                _show(party, line)

    def flush(self) -> None:
        """Shows the warnings that are held back."""
        with self._lock:
            held, self._held, self._timer = self._held, {}, None
            for line, warning in held.items():
                name = _name(warning.who)
                _show(name, line)
                if warning.source:
                    _show(name, warning.source)

    def close(self) -> None:
        """Shows what is left."""
        if (timer := self._timer) is not None:
            timer.cancel()
        self.flush()

    def _hold(self, party: str, who: Party, line: str) -> bool:
        """Returns True if the line is a warning, or the source line of one, that will be shown later or was shown."""
        before = self._last.pop(party, None)
        if before is not None and line.startswith("  "):
            if before in self._held:
                self._held[before].source = line
                return True
            return False  # the warning was shown a moment ago, without it
        if not WARNING.search(line):
            return False
        self._held.setdefault(line, _Warning()).who[party] = who
        self._last[party] = line
        if self._timer is None:
            self._timer = threading.Timer(HOLD_SECONDS, self.flush)
            self._timer.daemon = True
            self._timer.start()
        return True

    def _log(self, who: Party, line: str) -> None:
        """Appends a line to the log of its party; a full disk ends no run."""
        with contextlib.suppress(OSError):  # a full disk ends no run
            self._logs.mkdir(parents=True, exist_ok=True)
            with safe_join(self._logs, f"{str(who).replace(' ', '-')}.log").open("a", encoding="utf-8") as log:
                log.write(line + "\n")


def _name(who: dict[str, Party]) -> str:
    """Returns the party as it is shown, or `workers 0-39`; a host is named where there is one party only."""
    if len(who) == 1:
        return next(iter(who))
    return f"{next(iter(who.values())).kind}s {ranks_text(party.index for party in who.values())}"


def _show(name: str, line: str) -> None:
    """Writes a line behind the name of its party."""
    sys.stdout.write(f"[{name}] {line}\n")
    sys.stdout.flush()


class Losses:
    """Shows a run whose output is the scripts' own: from which checkpoint it goes on, and who was lost."""

    def __init__(self) -> None:
        self._begun = False
        self._lines = Lines(sys.stderr)

    def begin(self, lines: Sequence[str]) -> None:
        """Prints lines of the supervisor.

        The first call has the heading of the run. It is left out, but for what it says about the checkpoints that a
        run goes on from, or passes over: a run that began anew unnoticed would have lost work. It also says which cores
        the scripts were bound to, which the user has asked for, and another rate than the script's.
        """
        told = (line for line in lines if self._begun or "checkpoint" in line or line.startswith(CORES) or RATE in line)
        self._lines.say(*(f"paceline: {line}" for line in told))
        self._begun = True

    def show(self, snapshot: ProgressSnapshot) -> None: ...
    def close(self) -> None: ...
