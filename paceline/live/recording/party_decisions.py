"""Records what the machines of a worker, a server or the evaluator are asked, and what they decide.

    line                                          meaning
    {"format": 1, "party": ..., "incarnation": n}  the header: of what the machines are made
    ["in", at, "orders.told", [...], {...}]       a question to a machine, its arguments, and those with names
    ["out", [...]]                                what it decided

The machines are those of `paceline.core.parties` that say what a party does with the coordinator's messages. They have
no clock and wait for nobody, so the questions in their order are all that a decision follows from. `party_replay.py`
asks them again. Questions of several threads are recorded one after the other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from paceline.core.coordination.party import Party
from paceline.live.recording.message_text import actions_text, plain, raised
from paceline.live.recording.party_recorder import party_path
from paceline.live.recording.recording_file import SUFFIX, RecordingWriter

T = TypeVar("T")
DECISIONS = f".decisions{SUFFIX}"
"""The end of the names of these files."""


def decisions_path(folder: Path, who: Party, incarnation: int) -> Path:
    """Returns the file of one incarnation of a party in the folder of a run."""
    return party_path(folder, who, incarnation, DECISIONS)


class PartyDecisionRecorder:
    """Observes the machines of one party, in the folder of a run that can be reached from this host."""

    def __init__(self, folder: Path, who: Party, incarnation: int, bytes_max: int) -> None:
        """bytes_max: of the file, which ends there, since a replay begins at the beginning."""
        path = decisions_path(folder, who, incarnation)
        self._writer: RecordingWriter | None = None
        if path.parent.is_dir():
            header = {"party": str(who), "incarnation": incarnation}
            self._writer = RecordingWriter(path, bytes_max, header)
        self._lock, self._began = threading.Lock(), time.monotonic()

    def observe(self, name: str, machine: T) -> T:
        """Returns a machine that is to be used in the place of `machine`; what it is asked is recorded below `name`."""
        return cast(T, _ObservedMachine(name, machine, self)) if self._writer else machine

    def ask(self, name: str, method: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Asks a machine, and records question and decision, which are a pair: the next question waits."""
        assert self._writer is not None
        with self._lock:
            at = round(time.monotonic() - self._began, 6)
            values = {key: plain(value) for key, value in named.items()}
            self._writer.append(["in", at, name, plain(args), values], flush=False)
            try:
                actions = method(*args, **named)
            except Exception as error:
                self._writer.append(["out", [raised(error)]])
                raise
            self._writer.append(["out", actions_text(actions, folds_records=False)])
            return actions

    def close(self) -> None:
        """Ends the recording."""
        if self._writer:
            self._writer.close()


class _ObservedMachine:
    """Stands in for a machine."""

    def __init__(self, name: str, machine: Any, recorder: PartyDecisionRecorder) -> None:
        self._name, self._machine, self._recorder = name, machine, recorder

    def __getattr__(self, method: str) -> Any:
        own = getattr(self._machine, method)
        return lambda *args, **named: self._recorder.ask(f"{self._name}.{method}", own, args, named)
