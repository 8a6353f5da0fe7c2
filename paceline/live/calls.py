"""The calls of one party that are not answered yet."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import NamedTuple

from paceline.live.party import Party
from paceline.live.pending import Pending
from paceline.live.transport import Envelope


class OpenCall(NamedTuple):
    """The answer of `to` is part `part` of `pending`."""

    pending: Pending
    part: int
    to: Party


class OpenCalls:
    """By number. Its owner sees to it that one thread is here at a time.

    patient: what is asked of a server that is lost stays open, because another one will take its place; once that is
    there, all that was asked of servers is void, and asked again by whoever still wants to know.
    """

    def __init__(self) -> None:
        self.patient = False
        self._ids = itertools.count(1)
        self._calls: dict[int, OpenCall] = {}
        self._void = 0  # up to this number

    def open(self, pending: Pending, part: int, to: Party) -> int:
        number = next(self._ids)
        self._calls[number] = OpenCall(pending, part, to)
        return number

    def find(self, number: int) -> OpenCall | None:
        return self._calls.get(number)

    def close(self, number: int) -> OpenCall | None:
        return self._calls.pop(number, None)

    def close_all(self) -> list[Pending]:
        calls, self._calls = self._calls, {}
        return [call.pending for call in calls.values()]

    def waits_for(self, who: Party) -> bool:
        """Is nothing lost that is said to `who` while it is not there?"""
        return self.patient and who.kind == "server"

    def lost(self, who: Party) -> list[Pending]:
        """What `who` will not answer any more."""
        if self.waits_for(who):
            return []
        return [self._calls.pop(number).pending for number, call in list(self._calls.items()) if call.to == who]

    def void(self) -> list[Pending]:
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
