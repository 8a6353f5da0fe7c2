"""Holds messages that reach a live newcomer before its role exists, and says which of them need the role.

`paceline.core.parties.early_messages` holds them, in live runs and in simulated ones. A REPLY and a ReadState pass:
they need no role. Here the transport's thread holds, and the party's own thread releases.
"""

from __future__ import annotations

import threading

from paceline.core.coordination.party import Party
from paceline.core.parties.early_messages import EarlyMessages
from paceline.live.node.published_state import ReadState
from paceline.live.protocol.transport import REPLY, Envelope


class EarlyEnvelopes:
    """Holds the scheme's messages from the roster until the role is placed; from any thread."""

    def __init__(self) -> None:
        self._early = EarlyMessages[tuple[Party, Envelope]]()
        self._lock = threading.Lock()

    def begin(self, late: bool) -> None:
        """Begins to hold messages, once the roster is here, if this party is `late` (a newcomer)."""
        self._early.begin(late=late)

    @property
    def holding(self) -> bool:
        """Returns True from the roster until the role is placed, of a newcomer."""
        return self._early.holding

    def hold(self, src: Party, incarnation: int, envelope: Envelope) -> bool:
        """Keeps a message of that incarnation of `src` if the role has to see it and does not exist yet.

        Returns whether it was kept.
        """
        needs_role = envelope.kind != REPLY and not isinstance(envelope.message, ReadState)
        with self._lock:
            return self._early.hold(src, incarnation, (src, envelope), needs_role=needs_role)

    def refuse(self, src: Party, incarnation: int) -> None:
        """Drops what was kept of a party up to that incarnation, which was declared lost."""
        with self._lock:
            self._early.refuse(src, incarnation)

    def left(self, src: Party, incarnation: int) -> None:
        """Notes that this incarnation of a party has left: what was kept of it comes before that."""
        with self._lock:
            self._early.left(src, incarnation)

    def servers_went_back(self) -> None:
        """Drops what was kept of servers, which are in an earlier state now."""
        with self._lock:
            self._early.servers_went_back()

    def release_of_leavers(self) -> list[tuple[Party, Envelope]]:
        """Returns what was held of those that have left since."""
        with self._lock:
            return self._early.release_of_leavers()

    def release(self) -> list[tuple[Party, Envelope]]:
        """Returns what is held; called, when the role exists, until it returns nothing."""
        with self._lock:
            return self._early.release()
