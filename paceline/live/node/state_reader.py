"""Reads the published state of other parties, without their roles taking part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.core.coordination.party import Party
from paceline.core.effects import To
from paceline.live.node.message_sender import MessageSender
from paceline.live.node.published_state import WEIGHTS, PublishedState, ReadState
from paceline.live.protocol.pending_reply import PendingReply
from paceline.live.protocol.transport import Envelope, Kind


class StateReader:
    """Reads state through `out`. Each read raises PeerLost or TimedOut when nobody answers."""

    def __init__(self, out: MessageSender) -> None:
        self.out = out

    def read_state(self, to: To, what: str) -> Any:
        """Returns the vector that `to` publishes as `what`, such as its weights; also when the run is over."""
        return self.read_published(to, what).v

    def read_state_of(self, who: Party, what: str) -> Any:
        """Returns the same of one party, or of its first slice."""
        return self.read_published_of(who, what).v

    def read_published(self, to: To, what: str) -> PublishedState:
        """Returns the vector with its weight and facts."""
        shown: PublishedState = self.out.call(to, ReadState(what=what)).wait(self.out.timeout_s)
        return shown

    def read_published_of(self, who: Party, what: str, slice: int = 0) -> PublishedState:
        """Returns the state of one party, or of one of its slices."""
        return self.read_several(who, [(what, slice)])[0]

    def read_several(self, who: Party, wanted: Sequence[tuple[str, int]]) -> list[PublishedState]:
        """Returns several, read at once. `wanted`: name and slice of each."""
        asked = [self.out.ask([(0, who, at, ReadState(what=what))], f"the {what} of {who}") for what, at in wanted]
        return [pending.wait(self.out.timeout_s) for pending in asked]

    def version_of(self, who: Party, what: str) -> float:
        """Returns the number that `who` publishes by this name, such as a version."""
        return self.read_published_of(who, what).weight

    def read_model(self, to: To) -> tuple[Any, float]:
        """Returns the weights of `to`, and their weight in a mean over the workers."""
        shown = self.read_published(to, WEIGHTS)
        return shown.v, shown.weight

    def ask(self, who: Party, slice: int, message: Any, what: str) -> PendingReply:
        """Sends a call to one slice of `who`; `what` names it in a timeout."""
        pending = PendingReply(what, 1, self.out.memory)
        envelope = self.out.asking(who, slice, message, pending, 0, self.out.calls.server_view)
        self.out.send(who, envelope, slice)
        return pending

    def tell_slice(self, who: Party, slice: int, message: Any) -> None:
        self.out.send(who, Envelope(Kind.TELL, message, slice=slice, server_view=self.out.calls.server_view), slice)
