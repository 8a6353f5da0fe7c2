"""Reads the published state of other parties, without their roles taking part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.core.coordination.party import Party
from paceline.core.effects import To
from paceline.core.errors import PeerLost
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

    def read_model(self, rank: int) -> tuple[Any, float]:
        """Returns the weights of worker `rank`, and their weight in a mean over the workers."""
        return self.model_in(rank, self.read_published(rank, WEIGHTS))

    def model_in(self, rank: int, shown: PublishedState) -> tuple[Any, float]:
        """Returns the model that worker `rank` has shown. Raises PeerLost as `of_length` does."""
        self.of_length(rank, shown, self.model_length())
        return shown.v, shown.weight

    def of_length(self, rank: int, shown: PublishedState, length: int) -> PublishedState:
        """Returns what worker `rank` has shown. Raises PeerLost for a vector of another length: it has none of use."""
        if length and len(shown.v) != length:
            why = f"PublishedState: the length of v is {len(shown.v)}, which has to be {length}"
            self.shows_wrongly(rank, why)
            raise PeerLost(f"worker {rank} shows nothing of use: {why}")
        return shown

    def model_length(self) -> int:
        """Returns the elements of the run's model; 0 while that is unknown."""
        return 0

    def shows_wrongly(self, rank: int, why: str) -> None:
        """Counts a false claim of worker `rank`; here nobody counts."""

    def ask(self, who: Party, slice: int, message: Any, what: str) -> PendingReply:
        """Sends a call to one slice of `who`; `what` names it in a timeout."""
        pending = PendingReply(what, 1, self.out.memory)
        envelope = self.out.asking(who, slice, message, pending, 0, self.out.calls.server_view)
        self.out.send(who, envelope, slice)
        return pending

    def tell_slice(self, who: Party, slice: int, message: Any) -> None:
        self.out.send(who, Envelope(Kind.TELL, message, slice=slice, server_view=self.out.calls.server_view), slice)
