"""Messages whose vectors may still be arriving leave when they can be read; nothing waits for them but their like."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import Any, Protocol

from paceline.core.coordination.party import Party
from paceline.core.errors import PeerLost
from paceline.core.message import vector_fields
from paceline.core.vector import is_arriving
from paceline.live.protocol.transport import Envelope, Post


class EncodingPost(Post, Protocol):
    """Describes what takes the messages that may leave, as they are or encoded."""

    def encode_and_send(self, to: Party, envelope: Envelope, part: int) -> None:
        """Sends a message of the scheme, encoded; `part` is the slice that it is for or comes from."""


class _DeferredMessage:
    """A message that waits for `missing` of its vectors, or for those before it, until it may leave."""

    __slots__ = ("envelope", "missing", "part", "to")

    def __init__(self, to: Party, envelope: Envelope, part: int | None, missing: int) -> None:
        self.to, self.envelope, self.part, self.missing = to, envelope, part, missing


class DeferredSends:
    """Sends by `post`. Messages to one slice of a party leave in the order in which they were given."""

    def __init__(self, post: EncodingPost) -> None:
        self.me = post.me
        self._post = post
        self._held: dict[tuple[Party, int], deque[_DeferredMessage]] = {}
        self._lock = threading.Lock()

    @property
    def empty(self) -> bool:
        """Returns True while no message is held back."""
        return not self._held

    def send(self, to: Party, envelope: Envelope, part: int | None = None) -> None:
        """Sends a message now, or once its vectors are there and all before it have left.

        part: the slice that a message of the scheme is for or comes from; without one it is not encoded. Raises
        PeerLost when there is no way to `to`. A message whose vectors never come is dropped, and so is one that was
        held for a party that is lost by then: whoever waits for its answer hears of that anyhow.
        """
        arriving = _arriving(envelope)
        if arriving or self._held:
            held = _DeferredMessage(to, envelope, part, len(arriving))
            if self._hold((to, envelope.slice), held, arriving):
                return
        self._go(to, envelope, part)

    def _go(self, to: Party, envelope: Envelope, part: int | None) -> None:
        """Sends a message of which all is there."""
        envelope.queued_at = time.monotonic()
        if part is None:
            self._post.send(to, envelope)
        else:
            self._post.encode_and_send(to, envelope, part)

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
                    with contextlib.suppress(PeerLost):
                        self._go(first.to, first.envelope, first.part)
            if not waiting:
                self._held.pop(line, None)


def _arriving(envelope: Envelope) -> list[Any]:
    """Returns the vectors of a message that cannot be read yet."""
    message = envelope.message
    return [v for name in vector_fields(type(message)) for v in [getattr(message, name)] if is_arriving(v)]
