"""What a checkpoint consists of: files with sizes and checksums, and facts; JSON with a checksum of its own."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from typing import Any

from paceline.core.errors import PacelineError

BYTES_MAX = 1 << 24
FILES_MAX = 1 << 16
NOT_FINITE = "the model is not finite"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Damaged(PacelineError):  # noqa: N818
    """A checkpoint that cannot be trusted; the message says which file and what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file: `size` in bytes, `crc32` of all of them."""

    name: str
    size: int
    crc32: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """`facts`: JSON values, such as the step and the accuracy. `finite`: is every number of the model one?"""

    files: tuple[Entry, ...]
    finite: bool
    facts: dict[str, Any]

    def to_bytes(self) -> bytes:
        files = [[entry.name, entry.size, entry.crc32] for entry in self.files]
        text = json.dumps({"files": files, "finite": self.finite, "facts": self.facts}, allow_nan=False)
        return f"{zlib.crc32(text.encode()):08x}\n{text}\n".encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Raises Damaged for anything that `to_bytes` has not made."""
        try:
            head, text, end = data.split(b"\n", 2)
            if end or head != f"{zlib.crc32(text):08x}".encode():
                raise ValueError("its checksum is another one")
            found = json.loads(text)
            files = tuple(Entry(name=name, size=size, crc32=crc) for name, size, crc in found["files"])
            if len(files) > FILES_MAX or not all(_sound(entry) for entry in files):
                raise ValueError("it names files that no checkpoint has")
            return cls(files=files, finite=found["finite"] is True, facts=dict(found["facts"]))
        except (ValueError, KeyError, TypeError) as error:
            raise Damaged(f"manifest: {error}") from None


def _sound(entry: Entry) -> bool:
    """A plain name, so that no path leads out of the folder, and numbers that can be."""
    numbers = type(entry.size) is int and entry.size >= 0 and type(entry.crc32) is int
    return numbers and isinstance(entry.name, str) and NAME.fullmatch(entry.name) is not None
