"""Holds the roles of one slice, and the answers that say that there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from paceline.core.collective.mean_server import MeanServer
from paceline.core.coordination.party import Party
from paceline.core.effects import Mean
from paceline.core.errors import PeerLost
from paceline.core.message import message
from paceline.core.role import Role
from paceline.live.collectives.store import Vain
from paceline.live.node.published_state import StateGone
from paceline.live.protocol.pending_reply import PendingReply


@dataclass(slots=True, eq=False)
class ServedSlice:
    """Holds what handles the messages to one slice of a server, or to any other party.

    length: elements of the longest vector that may come, one that is as long as what is held here; 0 for any.
    after: callbacks, by name, called after each message to the role and before the next.
    """

    length: int = 0
    role: Role | None = None
    mean_server: MeanServer | None = None
    after: dict[str, Callable[[], None]] = field(default_factory=dict)

    def roles(self) -> list[Role]:
        """Returns the roles of the slice that exist: the scheme's, and the one that carries means."""
        return [role for role in (self.role, self.mean_server) if role is not None]


class Carrier(Protocol):
    """Carries `Mean` when the servers do not."""

    def begin(self, effect: Mean) -> PendingReply:
        """Begins a mean; returns its pending result."""


@message("hosted.Declined", plane="state")
class Declined:
    """Answers a call with: this worker has left."""

    def error(self, src: Party) -> PeerLost:
        """Returns the error that the caller raises."""
        return PeerLost(f"{src} has left")


IN_VAIN = (Declined, StateGone, Vain)
"""Answers that make a call fail."""
