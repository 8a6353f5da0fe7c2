"""Exactly once and in order, between processes that die and over links that lose, repeat and reorder.

Everything that one incarnation of a process sends to another is numbered 1, 2, 3, ...:

    sender:    keep what was sent until it is acknowledged; after a silence or a new connection send it again,
               the same numbers with the same contents
    receiver:  take the number that follows the last one taken, and no other; acknowledge the last one
    peers:     nothing is taken from an incarnation that is over (`core/fault_tolerance/peer_incarnations.py`)

A reply is a message like any other, so one that got lost is kept and sent again: the caller's repeated question is
not put to the role a second time. A process that crashes and comes back as the same incarnation has what it took, who
is over for it, what it has sent and not seen acknowledged, and the state of its role, all of one moment.

Nothing here knows a clock or a connection: whoever drives it decides when to send again. The simulator drives it as its
model of TCP, where messages are lost (`lossy_links.py`). No live run does: there TCP itself keeps the order, and a
connection that breaks is the loss of a party.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Any

from paceline.core.fault_tolerance.peer_incarnations import PeerIncarnations


class DeliveryVerdict(Enum):
    """Says what to do with a message that has arrived."""

    NEW = "new"  # give it to the role, then acknowledge
    REPEAT = "repeat"  # acknowledge: it was taken already
    GAP = "gap"  # drop it: one before it is still missing and will be sent again
    STALE = "stale"  # refuse it: its sender was declared dead, and should be told


class Receiver:
    """Remembers, for each sender by name, its incarnation and the number of the last message taken from it."""

    def __init__(self) -> None:
        self.peers = PeerIncarnations[str]()
        self._taken: dict[str, int] = {}  # of the incarnation that was met

    def __len__(self) -> int:
        """Returns the number of senders about which something is kept. It is bounded by the number of processes."""
        return len(self.peers)

    def admit(self, sender: str, incarnation: int, number: int) -> DeliveryVerdict:
        """Judges message `number`, counted from 1, of that incarnation of `sender`. NEW counts as taken from
        here on."""
        if self.peers.is_over(sender, incarnation):
            return DeliveryVerdict.STALE
        last = self.last(sender, incarnation)
        if number <= last:
            return DeliveryVerdict.REPEAT
        if number > last + 1:
            return DeliveryVerdict.GAP
        self.peers.meets(sender, incarnation)
        self._taken[sender] = number
        return DeliveryVerdict.NEW

    def last(self, sender: str, incarnation: int) -> int:
        """Returns the number to acknowledge: everything up to it was taken of that incarnation, which counts from 1."""
        return self._taken.get(sender, 0) if self.peers.met(sender) == incarnation else 0

    def expects(self, sender: str, incarnation: int, number: int) -> bool:
        """Returns True if message `number` of that incarnation was not taken yet, and would be."""
        return not self.peers.is_over(sender, incarnation) and self.last(sender, incarnation) < number


class Sender:
    """Numbers what one incarnation of a process sends to another, and keeps it until it is acknowledged."""

    def __init__(self) -> None:
        self._sent = 0
        self._kept: deque[tuple[int, Any]] = deque()

    def __len__(self) -> int:
        """Returns the number of messages that are not acknowledged."""
        return len(self._kept)

    @property
    def sent(self) -> int:
        """Returns the number of the last message, 0 before the first."""
        return self._sent

    @property
    def taken(self) -> int:
        """Returns the number up to which everything was acknowledged."""
        return self._kept[0][0] - 1 if self._kept else self._sent

    def put(self, contents: Any) -> int:
        """Keeps `contents`, and returns the number under which it is to be sent, now and whenever it is sent again."""
        self._sent += 1
        self._kept.append((self._sent, contents))
        return self._sent

    def acknowledged(self, last: int) -> None:
        """Forgets everything up to number `last`. A late, older acknowledgement changes nothing."""
        while self._kept and self._kept[0][0] <= last:
            self._kept.popleft()

    def unacknowledged(self) -> Iterator[tuple[int, Any]]:
        """Returns number and contents of what is kept, in the order in which it is to be sent again."""
        return iter(tuple(self._kept))
