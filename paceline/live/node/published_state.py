"""What a party shows to whoever asks, past its role: its weights, its buffers, that it is there."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from paceline.core.errors import PeerLost, ProtocolError, Undone
from paceline.core.message import message
from paceline.core.validation import bounds
from paceline.core.vector import Vector
from paceline.live.party import Party
from paceline.live.protocol.transport import Envelope, Kind, Post

WEIGHTS = "weights"
FINAL = "the final weights"
COMMON = "what newcomers take over"
PRESENCE = "that it is there"
STATE = "state"
FREIGHT = "some bytes"
FREIGHT_LENGTH = 1 << 18

WAITED_FOR = frozenset({WEIGHTS, FINAL})

Provider = Callable[[int], Any]


@message("state.ReadState", plane="state")
class ReadState:
    """Asks for a state that a party publishes, or that of one slice it holds; the role is not asked. The answer waits
    for a state that is not there yet."""

    what: bounds.Name


@message("state.PublishedState", plane="state")
class PublishedState:
    """`weight`: what a model counts in a mean over the workers. `facts`: JSON, of a state or of what is common."""

    v: Vector
    weight: bounds.AnyWeight = 1.0
    facts: bounds.LongText = ""


@message("state.StateGone", plane="state")
class StateGone:
    """Answers in place of a PublishedState that was kept for a while, and may have been for this asker."""

    def error(self, src: Party) -> Undone:
        return Undone(f"{src} no longer publishes the state that it had kept")


PAST_ROLES = (ReadState, PublishedState, StateGone)
"""Messages that roles do not see; they belong to no view."""


class StatePublisher:
    """Publishes states by name. A provider takes the number of a slice held here, and gives a vector, a vector and its
    weight, or a PublishedState.

    Weights, those at the end among them, and a state that is being kept may be waited for. The vectors of such a state
    go by `<whose>/<name>`; what they are made of is known from the state, so that one who asks in vain is too late.
    """

    def __init__(self, post: Post) -> None:
        self._post = post
        self._providers: dict[str, Provider] = {}
        self._curious: dict[str, list[tuple[Party, Envelope]]] = defaultdict(list)
        self._lock = threading.Lock()

    def __setitem__(self, what: str, provider: Provider) -> None:
        """From now on; whoever has asked already is answered."""
        with self._lock:
            self._providers[what] = provider
            waiting = self._curious.pop(what, [])
        for src, question in waiting:
            self._answer(src, question, provider)

    def withdraw(self, names: Iterable[str]) -> None:
        """Show these no more."""
        with self._lock:
            for what in names:
                self._providers.pop(what, None)

    def show(self, src: Party, question: Envelope) -> None:
        what = question.message.what
        with self._lock:
            provider = self._providers.get(what)
            if provider is None and (what in WAITED_FOR or what.endswith(f"/{STATE}")):
                self._curious[what].append((src, question))
                return
        if provider is not None:
            self._answer(src, question, provider)
        elif "/" in what:
            self._reply(src, question, StateGone())
        else:
            raise ProtocolError(f"{src} asks {self._post.me} for its {what}, which it does not publish")

    def _answer(self, src: Party, question: Envelope, provider: Provider) -> None:
        shown = provider(question.slice)
        if not isinstance(shown, PublishedState):
            v, weight = shown if isinstance(shown, tuple) else (shown, 1.0)
            shown = PublishedState(v=v, weight=weight)
        self._reply(src, question, shown)

    def _reply(self, src: Party, question: Envelope, shown: PublishedState | StateGone) -> None:
        with contextlib.suppress(PeerLost):  # the curious one has left
            self._post.send(src, Envelope(Kind.REPLY, shown, question.id))
