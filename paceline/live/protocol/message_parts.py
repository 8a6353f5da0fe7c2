"""Splits messages that grow with the number of parties, and joins their parts again.

A header has a bounded size (`frames.py`), and 1,000 workers need more in one roster. The coordinator therefore sends
such a message as several of the same class. Fields that have one entry a party are cut; all other fields stand in every
part. `more` is True in all parts but the last. A connection keeps the order of messages, so a receiver joins them as
they come.

    parts_of(roster)  ->  Roster(more=True), Roster(more=True), Roster()
    MessageParts.join ->  None,              None,              the whole roster
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from paceline.core.coordination import control_messages as control
from paceline.core.errors import ProtocolError

ENTRIES_MAX = 128
"""Entries of a field in one part. An entry of a roster has two names, so 128 of them stay well within a header."""
PARTS_MAX = 10_000
"""Parts of one message. It bounds what a receiver keeps: 1.28 million parties."""
CUT_FIELDS: dict[type, tuple[str, ...]] = {
    control.Roster: ("addresses", "hosts", "incarnations", "gone", "lost", "joining"),
    control.Plan: ("seconds_per_step", "devices", "hosts", "tensors", "batch_limits"),
}


def parts_of(message: Any) -> Iterator[Any]:
    """Yields the parts of a message: the message itself where it is short, or is of a class that is never cut."""
    names = CUT_FIELDS.get(type(message), ())
    longest = max((len(getattr(message, name)) for name in names), default=0)
    for begin in range(0, max(longest, 1), ENTRIES_MAX):
        if longest <= ENTRIES_MAX:
            yield message
        else:
            cut = {name: _slice(getattr(message, name), begin) for name in names}
            yield dataclasses.replace(message, **cut, more=begin + ENTRIES_MAX < longest)


def _slice(entries: Any, begin: int) -> Any:
    """Returns up to ENTRIES_MAX entries of a dict or a tuple, from the one at `begin`."""
    if isinstance(entries, dict):
        return dict(list(entries.items())[begin : begin + ENTRIES_MAX])
    return entries[begin : begin + ENTRIES_MAX]


class MessageParts:
    """Joins the parts that one party receives from the coordinator."""

    def __init__(self) -> None:
        self._parts: list[Any] = []

    def join(self, message: Any) -> Any:
        """Returns the whole message with its last part, and None before. Messages that are not cut pass through.

        Raises ProtocolError if a part of another message comes in between, or if there are too many parts.
        """
        names = CUT_FIELDS.get(type(message))
        if names is None:
            return message
        if (self._parts and type(self._parts[0]) is not type(message)) or len(self._parts) >= PARTS_MAX:
            raise ProtocolError(f"{type(message).__name__} came after {len(self._parts)} parts that it does not end")
        self._parts.append(message)
        if message.more:
            return None
        parts, self._parts = self._parts, []
        if len(parts) == 1:
            return message
        return dataclasses.replace(message, **{name: _joined([getattr(p, name) for p in parts]) for name in names})


def _joined(pieces: list[Any]) -> Any:
    """Returns the union of dicts, or one tuple of consecutive tuples."""
    if isinstance(pieces[0], dict):
        return {name: value for piece in pieces for name, value in piece.items()}
    return tuple(entry for piece in pieces for entry in piece)
