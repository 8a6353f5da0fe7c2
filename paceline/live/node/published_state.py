"""The state that a party publishes, which others read without its role taking part (ReadState, PublishedState).

name                       content                                            if there is none yet
WEIGHTS, FINAL             the model now; the last model                      the reader waits
STATISTICS                 batch-norm statistics of a worker now              an error
FINAL_STATISTICS           the last ones, of all workers                      the reader waits
COMMON                     what a newcomer takes over                         an error
PRESENCE                   nothing: the answer says that all before arrived   an error
TAKEN                      the same, and that a copy of a server has it       an error
FREIGHT                    1 MiB, to measure a link                           an error
<whose>/state              facts of a captured state                          the reader waits
<whose>/<vector>           one vector of it                                   StateGone: it was withdrawn
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from paceline.core.coordination.party import Party
from paceline.core.errors import PeerLost, ProtocolError, Undone
from paceline.core.message import message
from paceline.core.validation import bounds
from paceline.live.protocol.transport import Envelope, Kind, Post

WEIGHTS = "weights"
FINAL = "the final weights"
STATISTICS = "batch-norm statistics"
FINAL_STATISTICS = "the final batch-norm statistics"
COMMON = "what newcomers take over"
PRESENCE = "that it is there"
TAKEN = "that all is taken"
STATE = "state"
FREIGHT = "some bytes"
FREIGHT_LENGTH = 1 << 18

WAITED_FOR = frozenset({WEIGHTS, FINAL, FINAL_STATISTICS})

Provider = Callable[[int], Any]


@message("state.ReadState", plane="state")
class ReadState:
    """Asks for published state of a party, or of one slice it holds; answered at once, or once there is one."""

    what: bounds.Name


@message("state.PublishedState", plane="state")
class PublishedState:
    """Carries published state. `weight`: of a model in a mean over workers. `facts`: JSON, for COMMON and states."""

    v: bounds.Asked
    weight: bounds.AnyWeight = 1.0
    facts: bounds.LongText = ""


@message("state.StateGone", plane="state")
class StateGone:
    """Answers in place of PublishedState when a captured state was withdrawn before it was read."""

    def error(self, src: Party) -> Undone:
        """Returns the error that the reader raises."""
        return Undone(f"{src} no longer publishes the state that it had kept")


PAST_ROLES = (ReadState, PublishedState, StateGone)
"""Messages that roles do not see; they belong to no view."""


class StatePublisher:
    """Publishes state by name. A provider returns, for a slice, a vector, a vector and its weight, or PublishedState.

    Weights and a state that is being captured may be waited for. A reader knows the vectors of a state from its facts,
    so one that asks for a vector in vain is too late.
    """

    def __init__(self, post: Post) -> None:
        self._post = post
        self._providers: dict[str, Provider] = {}
        self._curious: dict[str, list[tuple[Party, Envelope]]] = defaultdict(list)
        self._lock = threading.Lock()

    def __setitem__(self, what: str, provider: Provider) -> None:
        """Publishes state from now on, and answers those who wait for it."""
        with self._lock:
            self._providers[what] = provider
            waiting = self._curious.pop(what, [])
        for src, question in waiting:
            self._answer(src, question, provider)

    def withdraw(self, names: Iterable[str]) -> None:
        """Stops publishing these names."""
        with self._lock:
            for what in names:
                self._providers.pop(what, None)

    def show(self, src: Party, question: Envelope) -> None:
        """Answers who asks for a state, now or once it is published.

        A state that a party always has at some time is waited for. What was kept for a while and is gone is answered
        with StateGone; raises ProtocolError for any other name.
        """
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
        """Sends what `provider` gives: a state, a vector, or a vector with its weight."""
        shown = provider(question.slice)
        if not isinstance(shown, PublishedState):
            v, weight = shown if isinstance(shown, tuple) else (shown, 1.0)
            shown = PublishedState(v=v, weight=weight)
        self._reply(src, question, shown)

    def _reply(self, src: Party, question: Envelope, shown: PublishedState | StateGone) -> None:
        """Sends a reply, unless the reader has left."""
        with contextlib.suppress(PeerLost):  # the curious one has left
            self._post.send(src, Envelope(Kind.REPLY, shown, question.id))
