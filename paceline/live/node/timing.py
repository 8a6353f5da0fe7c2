"""Measures the time of a party that is not work: waiting, communicating, and communication hidden behind work.

|------ computing ------|---- the party waits for the answer ----|
       |---- bytes of the call move ----|
       |<--- hidden --->|<communicating>|<------ waiting ------->|
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paceline.live.protocol.pending_reply import PendingReply


@dataclass(slots=True)
class AwaitedSeconds:
    """Notes that a party waits for this result, `since` when (monotonic clock, seconds)."""

    pending: PendingReply
    since: float


class Times:
    """Sums of seconds. hidden: bytes moved while the party did something else than wait for them.

    on_wait hears what was added: (waiting, communicating, hidden).
    """

    def __init__(self) -> None:
        self.on_wait: Callable[[float, float, float], None] | None = None
        self._streaming: AwaitedSeconds | None = None
        self.reset()

    def reset(self) -> None:
        self.waiting = self.communicating = self.hidden = 0.0

    def waited(self, awaited: AwaitedSeconds, until: float, sending: float = 0.0) -> None:
        """Adds a wait that is over; `sending`: seconds spent on sending before it, which are not hidden either."""
        passed = until - awaited.since
        before, after = awaited.pending.seconds_before_and_after(awaited.since)
        communicating = min(passed, after)
        self._add(passed - communicating, communicating + sending, max(0.0, before - sending))
        self._streaming = AwaitedSeconds(awaited.pending, until) if awaited.pending.streams else None

    def held(self, seconds: float) -> None:
        """Adds a wait for other workers in which no answer was under way."""
        self._add(seconds, 0.0, 0.0)

    def arrived(self) -> None:
        """Adds what the rest of an answer cost that was read while it still arrived."""
        if self._streaming is not None:
            pending, since = self._streaming.pending, self._streaming.since
            self._streaming = None
            moved = pending.seconds_communicating(since=since)
            communicating = min(moved, pending.seconds_waited)
            self._add(pending.seconds_waited - communicating, communicating, moved - communicating)

    def _add(self, waiting: float, communicating: float, hidden: float) -> None:
        self.waiting += waiting
        self.communicating += communicating
        self.hidden += hidden
        if self.on_wait:
            self.on_wait(waiting, communicating, hidden)
