"""Holds the calls that are not answered yet: those that a process has made, and those that others made to it.

an outgoing call   input                                              then
OPEN               REPLY with its number                              closed; the answer goes to its PendingReply
OPEN               the other party is lost                            fails with PeerLost; a late answer is ignored
OPEN               a server is lost that will be replaced (`retries`) stays open
OPEN               that server is restored from a copy                the same call is sent again (`asked_again`)
OPEN               servers went back to a snapshot                    void: fails with Undone, late answers are ignored
OPEN               this process lost the coordinator                  fails; from then on no call waits for a new server
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Collection, Iterator
from typing import NamedTuple

from paceline.core.coordination.party import Party
from paceline.core.role import Role
from paceline.live.protocol.pending_reply import PendingReply
from paceline.live.protocol.transport import Envelope


class OpenCall(NamedTuple):
    """Names what a call is for: the answer of `to` is part `part` of `pending`."""

    pending: PendingReply
    part: int
    to: Party


class OutgoingCalls:
    """Holds the calls of one process to others, by number. Its owner lets one thread in at a time.

    retries: calls to a lost server stay open, because another process will take its place.
    """

    def __init__(self) -> None:
        self.retries = False
        self._ids = itertools.count(1)
        self._calls: dict[int, OpenCall] = {}
        self._void = 0  # a call below this number that is not open is void

    def open(self, pending: PendingReply, part: int, to: Party) -> int:
        """Opens a call and returns its number, which its reply will name."""
        number = next(self._ids)
        self._calls[number] = OpenCall(pending, part, to)
        return number

    def find(self, number: int) -> OpenCall | None:
        """Returns an open call, or None."""
        return self._calls.get(number)

    def close(self, number: int) -> OpenCall | None:
        """Returns an open call and forgets it; None where it is not open."""
        return self._calls.pop(number, None)

    def close_all(self) -> list[PendingReply]:
        """Forgets all calls; returns who waits for them."""
        calls, self._calls = self._calls, {}
        return [call.pending for call in calls.values()]

    def waits_for(self, who: Party) -> bool:
        """Returns True if calls to `who` stay open while it is lost, since it will be replaced."""
        return self.retries and who.kind == "server"

    def lost(self, who: Party) -> list[PendingReply]:
        """Closes the calls that `who` will not answer any more, and returns their replies.

        The coordinator may count as lost who only hung, so its answers can still arrive; they are void.
        """
        if self.waits_for(who):
            return []
        self._void = next(self._ids)
        return [self._calls.pop(number).pending for number, call in list(self._calls.items()) if call.to == who]

    def void(self) -> list[PendingReply]:
        """Closes all calls to servers, and returns their replies; answers that still arrive are void."""
        self._void = next(self._ids)
        asked = [number for number, call in self._calls.items() if call.to.kind == "server"]
        return [self._calls.pop(number).pending for number in asked]

    def asked_again(self, whom: Collection[Party]) -> list[tuple[Party, Envelope]]:
        """Returns the calls to send again: sent to these, and not answered. An answer may then arrive twice."""
        self._void = next(self._ids)
        open_there = [(number, call) for number, call in self._calls.items() if call.to in whom]
        return [
            (call.to, envelope)
            for number, call in open_there
            for envelope in call.pending.sent
            if envelope.id == number and envelope.queued_at
        ]

    def is_void(self, number: int) -> bool:
        """Returns True for a call from before a loss, or before servers went back: its reply counts no more."""
        return number < self._void


class IncomingCalls:
    """Holds the calls of others to the roles of one process, by role and rank, the oldest first.

    Its owner lets one thread in at a time.
    """

    def __init__(self) -> None:
        self._calls: dict[tuple[Role, int], deque[int]] = defaultdict(deque)
        self._away: set[int] = set()

    def take(self, role: Role, rank: int, id: int) -> bool:
        """Notes a call of worker `rank`; returns False if it is a repetition of one that is open."""
        waiting = self._calls[role, rank]
        if id in waiting:
            return False  # asked again, and will be answered
        waiting.append(id)
        return True

    def oldest(self, role: Role, rank: int) -> int | None:
        """Takes out the number of the oldest call, to answer it; None if there is none."""
        calls = self._calls.get((role, rank))
        return calls.popleft() if calls else None

    def away(self, rank: int) -> bool:
        """Returns True if that worker has left or was lost, so that it gets no answers."""
        return rank in self._away

    def came(self, rank: int) -> None:
        self._away.discard(rank)

    def gone(self, rank: int) -> None:
        """Notes that this worker waits for no answer any more."""
        self._away.add(rank)
        for key in [key for key in self._calls if key[1] == rank]:
            del self._calls[key]

    def clear(self) -> Iterator[tuple[int, int]]:
        """Drops all calls, which will not be answered, and yields rank and number of each."""
        calls, self._calls = self._calls, defaultdict(deque)
        return ((rank, id) for (_, rank), ids in calls.items() for id in ids)

    def __len__(self) -> int:
        return sum(map(len, self._calls.values()))
