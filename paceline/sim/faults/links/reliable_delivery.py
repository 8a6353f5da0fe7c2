"""Exactly once and in order, between processes that die and over links that lose, repeat and reorder.

Everything that one incarnation of a process sends to another is numbered 1, 2, 3, ...:

    sender:    keep what was sent until it is acknowledged; after a silence or a new connection send it again,
               the same numbers with the same contents
    receiver:  take the number that follows the last one taken, and no other; acknowledge the last one
    fence:     nothing more is taken from an incarnation (one incarnation of a process) that was declared dead

A reply is a message like any other, so one that got lost is kept and sent again: the caller's repeated question is
not put to the role a second time. What a receiver took, the fences, what it has sent and not seen acknowledged, and the
state of its role change together, and are saved and restored as one; then a crash at any moment loses and repeats
nothing. `state()` of both classes is made of dicts, lists, strings and numbers for that purpose.

Nothing here knows a clock or a connection: whoever drives it decides when to send again. The simulator drives it as its
model of TCP, where messages are lost (`lossy_links.py`). No live run does: there TCP itself keeps the order, and a
connection that breaks is the loss of a party.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Any


class DeliveryVerdict(Enum):
    """Says what to do with a message that has arrived."""

    NEW = "new"  # give it to the role, then acknowledge
    REPEAT = "repeat"  # acknowledge: it was taken already
    GAP = "gap"  # drop it: one before it is still missing and will be sent again
    STALE = "stale"  # refuse it: its sender was declared dead, and should be told


class Receiver:
    """Remembers, for each sender by name, its incarnation and the number of the last message taken from it."""

    def __init__(self) -> None:
        self._taken: dict[str, tuple[int, int]] = {}
        self._fences: dict[str, int] = {}  # the last incarnation that is refused

    def __len__(self) -> int:
        """Returns the number of senders about which something is kept. It is bounded by the number of processes."""
        return len(self._taken.keys() | self._fences.keys())

    def admit(self, sender: str, incarnation: int, number: int) -> DeliveryVerdict:
        """Judges message `number`, counted from 1, of that incarnation of `sender`. NEW counts as taken from
        here on."""
        known, last = self._taken.get(sender, (incarnation, 0))
        if incarnation < known or self.refuses(sender, incarnation):
            return DeliveryVerdict.STALE
        # A later incarnation counts its messages from 1 again.
        if incarnation > known:
            last = 0
        if number <= last:
            return DeliveryVerdict.REPEAT
        if number > last + 1:
            return DeliveryVerdict.GAP
        self._taken[sender] = (incarnation, number)
        return DeliveryVerdict.NEW

    def last(self, sender: str, incarnation: int) -> int:
        """Returns the number to acknowledge: everything up to it was taken of that incarnation."""
        known, last = self._taken.get(sender, (incarnation, 0))
        return last if known == incarnation else 0

    def expects(self, sender: str, incarnation: int, number: int) -> bool:
        """Returns True if message `number` of that incarnation was not taken yet, and would be."""
        known, last = self._taken.get(sender, (incarnation, 0))
        if incarnation < known or self.refuses(sender, incarnation):
            return False
        return incarnation > known or last < number

    def fence(self, sender: str, incarnation: int) -> None:
        """Rejects everything of this incarnation of `sender`, and of earlier ones, from now on."""
        self._fences[sender] = max(incarnation, self._fences.get(sender, incarnation))

    def refuses(self, sender: str, incarnation: int) -> bool:
        """Returns True if that incarnation of `sender`, or a later one, was fenced."""
        return incarnation <= self._fences.get(sender, incarnation - 1)

    def state(self) -> dict[str, Any]:
        """Returns one plain value, to be saved together with what the messages have changed."""
        return {"taken": {name: list(pair) for name, pair in self._taken.items()}, "fences": dict(self._fences)}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Receiver:
        """Returns a receiver that goes on from a saved `state()`."""
        receiver = cls()
        receiver._taken = {name: (incarnation, last) for name, (incarnation, last) in state["taken"].items()}
        receiver._fences = dict(state["fences"])
        return receiver


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

    def state(self) -> dict[str, Any]:
        """Returns one value, plain as far as the contents are. Tests save and restore it; the simulator keeps the
        object itself."""
        return {"sent": self._sent, "kept": [list(pair) for pair in self._kept]}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Sender:
        """Returns a sender that goes on from a saved `state()`."""
        sender = cls()
        sender._sent = state["sent"]
        sender._kept = deque((number, contents) for number, contents in state["kept"])
        return sender
