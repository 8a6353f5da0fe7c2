"""The protocol of launchers, agents, the fork server and benchmarks: each typed message is a line of JSON.

A message is a class that derives from `LaunchMessage`; its tag stands under "word". `encode` makes the line, and a
`LineDecoder` makes messages of the bytes that come. Lines are ASCII: names of files that are no UTF-8 pass as they are.
"""

from __future__ import annotations

import json
from typing import Any, Generic, TypeVar

import msgspec

W = TypeVar("W")


class LaunchMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="word", forbid_unknown_fields=True):
    """Is the base of messages, one JSON line each; unknown fields are rejected."""


def encode(message: LaunchMessage) -> bytes:
    """Returns a message as one line, with its line break."""
    return json.dumps(msgspec.to_builtins(message), separators=(",", ":")).encode("ascii") + b"\n"


class LineDecoder(Generic[W]):
    """Decodes a stream of bytes, fed in pieces of any size, into messages."""

    def __init__(self, types: Any) -> None:
        """`types`: a union of the messages that the other side may send."""
        self._types = types
        self._rest = b""
        self._lines: list[bytes] = []  # whole ones, the oldest last

    def feed(self, data: bytes) -> None:
        """Takes bytes of any length; whole lines can be taken from now on."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        self._lines = [*whole[::-1], *self._lines]

    @property
    def has_message(self) -> bool:
        """Returns True if a whole line is there."""
        return bool(self._lines)

    @property
    def unfinished_bytes(self) -> int:
        """Returns the length of the line that has not come whole, which callers bound."""
        return len(self._rest)

    def drop(self) -> None:
        """Forgets the lines that have come whole."""
        self._lines = []

    def take(self) -> W:
        """Returns the oldest message that has come. Raises ValueError for a line that is none."""
        try:
            message: W = msgspec.convert(json.loads(self._lines.pop()), self._types)
        except RecursionError:
            raise ValueError("the line is nested too deeply") from None
        return message
