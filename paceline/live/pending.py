"""A result that has not come yet, and how long it took to come."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from paceline.core.effects import Ticket
from paceline.core.errors import TimedOut
from paceline.core.message import gather
from paceline.core.vector import Memory
from paceline.live.transport import Envelope


def rooms_for(lengths: Sequence[int], shared: Sequence[Any], memory: Memory) -> list[Any]:
    """Those vectors that are `shared`, and new ones for the others."""
    if not shared:
        return [memory.empty(length) for length in lengths]
    return [memory.empty(n) if v is None else v for n, v in zip(lengths, shared, strict=True)]


class Pending(Ticket):
    """Waits for `parts` answers (one a slice) and joins them into one."""

    def __init__(self, what: str, parts: int, memory: Memory) -> None:
        """`what` is named when the wait outlasts its deadline."""
        self.what = what
        self.begun = time.monotonic()
        self.sent: list[Envelope] = []
        self._memory = memory
        self._parts: list[Any] = [None] * parts
        self._missing = parts
        self._received: list[tuple[float, float]] = []  # when each answer was there, and the seconds it took
        self._buffers: dict[int, Any] = {}
        self._error: BaseException | None = None
        self._done = threading.Event()

    def room(self, part: int, shards: Sequence[slice], lengths: Sequence[int], shared: Sequence[Any] = ()) -> list[Any]:
        """Where the vectors of answer `part` go: its slices of one buffer a field, so that joining copies nothing.

        Those that are `shared` stay where they are.
        """
        if len(self._parts) == 1:
            return rooms_for(lengths, shared, self._memory)
        total = shards[-1].stop
        rooms = []
        for field, length in enumerate(lengths):
            if shared and shared[field] is not None:
                rooms.append(shared[field])
                continue
            if length != shards[part].stop - shards[part].start:
                rooms.append(self._memory.empty(length))
                continue
            if field not in self._buffers:
                self._buffers[field] = self._memory.empty(total)
            rooms.append(self._buffers[field][shards[part]])
        return rooms

    def put(self, part: int, answer: Any, seconds_receiving: float) -> None:
        self._parts[part] = answer
        self._received.append((time.monotonic(), seconds_receiving))
        self._missing -= 1
        if not self._missing:
            self._buffers.clear()
            self._done.set()

    def fail(self, error: BaseException) -> None:
        self._error = error
        self._done.set()

    def wait(self, timeout_s: float) -> Any:
        """The joined answer. Raises what `fail` was given, or TimedOut."""
        if not self._done.wait(timeout_s):
            raise TimedOut(f"waited {timeout_s:.0f} s for {self.what}")
        if self._error is not None:
            raise self._error
        return gather(self._parts, self._memory)

    def seconds_communicating(self, since: float = 0.0) -> float:
        """Time after `since` in which bytes of this call moved, either way or both."""
        until, total = max(since, self.begun), 0.0
        sent = max((envelope.sent_at for envelope in self.sent), default=0.0)
        moved = [(self.begun, sent), *((at - seconds, at) for at, seconds in self._received)]
        for begin, end in sorted(moved):
            total += max(0.0, end - max(begin, until))
            until = max(until, end)
        return total
