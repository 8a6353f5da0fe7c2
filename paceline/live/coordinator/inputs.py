"""The inputs of the coordinator, and who observes them and what the coordinator decides.

    InputKind     values                    from
    MESSAGE       party, envelope           the transport
    LOST          party, why, cause         the transport, or carrying a decision out
    FAILED        error                     the transport's thread
    TIMER         timer, number             a timer that a decision started
    RENDEZVOUS    -                         the timer of those who wait for a key of the rendezvous
    STOP          reason                    the supervisor
    ENDED         party, why                the supervisor: the process of that party has ended
    STARTED       party, incarnation        the supervisor: a process of that party was started during training
    ORDER         kind, rank, factor, why   the supervisor: what a person asks for; `why` it is refused already

All of a coordinator follows from these inputs, the time of each, its configuration, and whether a snapshot is
available. So whoever observes them can record a run, and replay it (`paceline.live.recording`).
"""

from __future__ import annotations

import contextlib
import enum
from contextlib import AbstractContextManager
from typing import Any, Protocol

from paceline.core.coordination.decisions import CoordinatorDecision


class InputKind(enum.Enum):
    MESSAGE = "message"
    LOST = "lost"
    FAILED = "failed"
    TIMER = "timer"
    RENDEZVOUS = "rendezvous"
    STOP = "stop"
    ENDED = "ended"
    STARTED = "started"
    ORDER = "order"


class CoordinatorObserver(Protocol):
    """Observes a coordinator, on its thread."""

    def input(self, kind: InputKind, *values: Any) -> AbstractContextManager[None]:
        """Returns a context that lasts as long as this input is handled. An input may come within another one."""

    def decided(self, decision: CoordinatorDecision) -> None:
        """Hears each decision before it is carried out."""


class NoObserver:
    """Observes nothing, for a run that is not recorded."""

    _NOTHING = contextlib.nullcontext()

    def input(self, kind: InputKind, *values: Any) -> AbstractContextManager[None]:
        return self._NOTHING

    def decided(self, decision: CoordinatorDecision) -> None:
        """Does nothing."""


NO_OBSERVER = NoObserver()
