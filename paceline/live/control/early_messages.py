"""Holds messages that reach a newcomer before its role exists.

    state      input                    then                                   next
    OFF        the roster, late         nothing yet                            HOLDING
    HOLDING    a scheme's message       it is kept, in order                   HOLDING
    HOLDING    a REPLY, a ReadState     they pass: they need no role           HOLDING
    HOLDING    release                  all kept messages go to the role       OFF

The role is made of another worker's state, which takes several messages to read. What other workers send meanwhile
would otherwise find no role, and be an error.
"""

from __future__ import annotations

import threading

from paceline.core.coordination.party import Party
from paceline.live.node.published_state import ReadState
from paceline.live.protocol.transport import REPLY, Envelope


class EarlyMessages:
    """Holds the scheme's messages from the roster until the role is placed; from any thread."""

    def __init__(self) -> None:
        self._held: list[tuple[Party, Envelope]] | None = None  # None while nothing is held
        self._lock = threading.Lock()

    def begin(self, late: bool) -> None:
        """Begins to hold messages, once the roster is here, if this party is `late` (a newcomer)."""
        self._held = [] if late else None

    @property
    def holding(self) -> bool:
        """Returns True from the roster until the role is placed, of a newcomer."""
        return self._held is not None

    def hold(self, src: Party, envelope: Envelope) -> bool:
        """Keeps the message if the role has to see it and does not exist yet; returns whether it was kept."""
        with self._lock:
            held = self._held
            if held is None or envelope.kind == REPLY or isinstance(envelope.message, ReadState):
                return False
            held.append((src, envelope))
            return True

    def release(self) -> list[tuple[Party, Envelope]]:
        """Returns what was held, and holds nothing from now on; called when the role exists."""
        with self._lock:
            held, self._held = self._held or [], None
            return held
