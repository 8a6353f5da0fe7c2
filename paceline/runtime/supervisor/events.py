"""The events that the supervising thread is told by others, and the queue in which it finds them."""

from __future__ import annotations

import contextlib
import queue
from dataclasses import dataclass

from paceline.core.coordination.decisions import FailureKind
from paceline.core.coordination.party import Party
from paceline.runtime.spec.launcher import ProcessEnded


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Says that `who` makes the run fail. `kind` says how close that is to the root cause."""

    who: Party
    cause: str
    kind: FailureKind
    details: str = ""


@dataclass(frozen=True, slots=True)
class Started:
    """Training begins; `notes` are the first lines that the user reads."""

    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MemberEvent:
    """Incarnation `incarnation` of `who` has joined or, `lost`, is over."""

    who: Party
    incarnation: int
    line: str
    lost: bool


@dataclass(frozen=True, slots=True)
class StatusLine:
    """Carries a line for the user, which decides nothing."""

    line: str


@dataclass(frozen=True, slots=True)
class Grow:
    """Says that one more worker is wanted."""


@dataclass(frozen=True, slots=True)
class LossReached:
    """Says that the model has reached the target loss."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Says that training is over and the model is saved."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Says that a signal asks the run to end."""

    signal: str


@dataclass(frozen=True, slots=True)
class Taken:
    """Says that all hosts are taken away, which counts as SIGTERM; `why` is a line for the user."""

    why: str


Event = Failure | Started | MemberEvent | StatusLine | Grow | LossReached | Finished | Interrupted | Taken


class EventQueue:
    """Holds everything that happens to a run, in the order in which it is handled. Any thread may call `put`."""

    def __init__(self, ended: queue.SimpleQueue[ProcessEnded]) -> None:
        """`ended`: of the launcher. The ends of processes come before all other events."""
        self._ended = ended
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def put(self, event: Event) -> None:
        """Adds an event."""
        self._events.put(event)

    def next(self, seconds: float) -> Event | ProcessEnded | None:
        """Returns what happens next; None where nothing does within `seconds`."""
        with contextlib.suppress(queue.Empty):
            return self._ended.get_nowait()
        with contextlib.suppress(queue.Empty):
            return self._events.get(timeout=seconds)
        return None
