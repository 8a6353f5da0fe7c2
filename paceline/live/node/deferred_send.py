"""Messages whose vectors may still be arriving leave when they can be read; nothing waits for them but their like."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from paceline.core.coordination.party import Party
from paceline.core.errors import PeerLost
from paceline.core.message import vector_fields
from paceline.core.vector import is_arriving
from paceline.live.protocol.transport import Envelope, Post

Action = Callable[[], None]


class _DeferredMessage:
    """A message that waits for `missing` of its vectors, or for those before it, until it may `go`."""

    __slots__ = ("envelope", "go", "missing")

    def __init__(self, envelope: Envelope, go: Action, missing: int) -> None:
        self.envelope, self.go, self.missing = envelope, go, missing


class DeferredSends:
    """Sends by `post`. Messages to one slice of a party leave in the order in which they were given."""

    def __init__(self, post: Post) -> None:
        self.me = post.me
        self._post = post
        self._held: dict[tuple[Party, int], deque[_DeferredMessage]] = {}
        self._lock = threading.Lock()

    def send(self, to: Party, envelope: Envelope, go: Action | None = None) -> None:
        """Sends a message now, or once its vectors are there and all before it have left.

        go: sends it, if that is more than posting. Raises PeerLost when there is no way to `to`. A message whose
        vectors never come is dropped, and so is one that was held for a party that is lost by then: whoever waits for
        its answer hears of that anyhow.
        """
        arriving = _arriving(envelope) if vector_fields(type(envelope.message)) else []
        if arriving or self._held:
            held = _DeferredMessage(envelope, go or (lambda: self._post.send(to, envelope)), len(arriving))
            if self._hold((to, envelope.slice), held, arriving):
                return
        envelope.queued_at = time.monotonic()
        if go:
            go()
        else:
            self._post.send(to, envelope)

    def _hold(self, line: tuple[Party, int], held: _DeferredMessage, arriving: list[Any]) -> bool:
        """Keeps the message back if it must wait; returns whether it does."""
        with self._lock:
            if not arriving and line not in self._held:
                return False
            self._held.setdefault(line, deque()).append(held)
        for v in arriving:
            v.when(lambda: self._came(line, held))
        return True

    def _came(self, line: tuple[Party, int], held: _DeferredMessage) -> None:
        """Sends the messages at the head of `line` that need not wait any more."""
        with self._lock:
            held.missing -= 1
            waiting = self._held.get(line, ())
            while waiting and not waiting[0].missing:
                first = waiting.popleft()
                if not _arriving(first.envelope):
                    first.envelope.queued_at = time.monotonic()
                    with contextlib.suppress(PeerLost):
                        first.go()
            if not waiting:
                self._held.pop(line, None)


def _arriving(envelope: Envelope) -> list[Any]:
    """Returns the vectors of a message that cannot be read yet."""
    message = envelope.message
    return [v for name in vector_fields(type(message)) for v in [getattr(message, name)] if is_arriving(v)]
