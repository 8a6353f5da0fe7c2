"""Calls that are not answered yet: those that a process has made, and those that others have made to it."""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Collection, Iterator
from typing import NamedTuple

from paceline.core.role import Role
from paceline.live.party import Party
from paceline.live.protocol.pending_reply import PendingReply
from paceline.live.protocol.transport import Envelope


class OpenCall(NamedTuple):
    """The answer of `to` is part `part` of `pending`."""

    pending: PendingReply
    part: int
    to: Party


class OutgoingCalls:
    """What one process has asked of others, by number. Its owner sees to it that one thread is here at a time.

    patient: what is asked of a server that is lost stays open, because another one will take its place; once that is
    there, all that was asked of servers is void, and asked again by whoever still wants to know.
    """

    def __init__(self) -> None:
        self.retries = False
        self._ids = itertools.count(1)
        self._calls: dict[int, OpenCall] = {}
        self._void = 0  # up to this number

    def open(self, pending: PendingReply, part: int, to: Party) -> int:
        number = next(self._ids)
        self._calls[number] = OpenCall(pending, part, to)
        return number

    def find(self, number: int) -> OpenCall | None:
        return self._calls.get(number)

    def close(self, number: int) -> OpenCall | None:
        return self._calls.pop(number, None)

    def close_all(self) -> list[PendingReply]:
        calls, self._calls = self._calls, {}
        return [call.pending for call in calls.values()]

    def waits_for(self, who: Party) -> bool:
        """Is nothing lost that is said to `who` while it is not there?"""
        return self.retries and who.kind == "server"

    def lost(self, who: Party) -> list[PendingReply]:
        """What `who` will not answer any more."""
        if self.waits_for(who):
            return []
        return [self._calls.pop(number).pending for number, call in list(self._calls.items()) if call.to == who]

    def void(self) -> list[PendingReply]:
        """What was asked of servers."""
        self._void = next(self._ids)
        asked = [number for number, call in self._calls.items() if call.to.kind == "server"]
        return [self._calls.pop(number).pending for number in asked]

    def asked_again(self, whom: Collection[Party]) -> list[tuple[Party, Envelope]]:
        """What was asked of these and is not answered, but for what is still held back; it may be answered twice."""
        self._void = next(self._ids)
        open_there = [(number, call) for number, call in self._calls.items() if call.to in whom]
        return [
            (call.to, envelope)
            for number, call in open_there
            for envelope in call.pending.sent
            if envelope.id == number and envelope.queued_at
        ]

    def is_void(self, number: int) -> bool:
        return number < self._void


class IncomingCalls:
    """What others have asked of the roles of one process: calls by role and rank, the oldest first.

    Its owner sees to it that one thread is here at a time.
    """

    def __init__(self) -> None:
        self._calls: dict[tuple[Role, int], deque[int]] = defaultdict(deque)
        self._away: set[int] = set()

    def take(self, role: Role, rank: int, id: int) -> bool:
        """Is that call of worker `rank` new?"""
        waiting = self._calls[role, rank]
        if id in waiting:
            return False  # asked again, and will be answered
        waiting.append(id)
        return True

    def oldest(self, role: Role, rank: int) -> int | None:
        """Take it out, to answer it; None where there is none."""
        calls = self._calls.get((role, rank))
        return calls.popleft() if calls else None

    def away(self, rank: int) -> bool:
        """Has that worker left, or was it lost? Whatever it still waits for is not answered."""
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
