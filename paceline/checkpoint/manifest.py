"""The manifest lists what a checkpoint consists of: files with sizes and checksums, and facts.

It is two lines: a CRC-32 in hexadecimal, and the JSON that it is of. Any other bytes are refused.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from typing import Any

from paceline.checkpoint import manifest_facts as kinds
from paceline.checkpoint import strict_json
from paceline.core.errors import PacelineError

BYTES_MAX = 1 << 22
"""Bytes of a manifest. A longer one is refused before it is read."""
FILES_MAX = 1 << 16
"""Files of a checkpoint."""
SIZE_MAX = 1 << 53
"""Bytes of a file; JSON numbers are exact up to here."""
NOT_FINITE = "the model is not finite"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names of files: no separator and no leading dot, so that no name leads out of the folder."""


class Damaged(PacelineError):  # noqa: N818
    """A checkpoint cannot be trusted; the message says which file and what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """A file has `size` bytes; `crc32` is of all of them."""

    name: str
    size: int
    crc32: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Holds the files and the `facts`, JSON values such as the step and the accuracy.

    `finite`: every number of the model is.
    """

    files: tuple[FileEntry, ...]
    finite: bool
    facts: dict[str, Any]

    def to_bytes(self) -> bytes:
        """Returns the two lines of the manifest. Raises ValueError for NaN or infinity among the facts."""
        files = [[entry.name, entry.size, entry.crc32] for entry in self.files]
        text = json.dumps({"files": files, "finite": self.finite, "facts": self.facts}, allow_nan=False)
        return f"{zlib.crc32(text.encode()):08x}\n{text}\n".encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Returns the manifest. Raises Damaged for anything that `to_bytes` has not made."""
        try:
            return cls._checked(_text_of(data))
        except ValueError as error:
            raise Damaged(f"manifest: {error}") from None

    @classmethod
    def _checked(cls, text: bytes) -> Manifest:
        """Returns the manifest in `text`. Raises ValueError."""
        found = strict_json.decoded(text)
        if not isinstance(found, dict) or found.keys() != {"files", "finite", "facts"}:
            raise ValueError("its names must be files, finite and facts")
        if type(found["finite"]) is not bool:
            raise ValueError("'finite' is neither true nor false")
        return cls(files=_entries(found["files"]), finite=found["finite"], facts=kinds.check(found["facts"]))


def _text_of(data: bytes) -> bytes:
    """Returns what is under the checksum. Raises ValueError."""
    if len(data) > BYTES_MAX:
        raise ValueError(f"longer than {BYTES_MAX} bytes")
    head, _, rest = data.partition(b"\n")
    text, newline, end = rest.partition(b"\n")
    if end or not newline or head != f"{zlib.crc32(text):08x}".encode():
        raise ValueError("incomplete, or its checksum is wrong")
    return text


def _entries(found: Any) -> tuple[FileEntry, ...]:
    """Returns the files in the JSON value `found`. Raises ValueError."""
    if not isinstance(found, list) or len(found) > FILES_MAX:
        raise ValueError(f"its files are not a list, or more than {FILES_MAX}")
    if not all(isinstance(row, list) and len(row) == 3 for row in found):
        raise ValueError("a file must be a name, a size and a checksum")
    files = tuple(FileEntry(name=name, size=size, crc32=crc) for name, size, crc in found)
    if not all(map(_sound, files)):
        raise ValueError("a file has an invalid name, size or checksum")
    if len({entry.name for entry in files}) < len(files):
        raise ValueError("it names a file twice")
    return files


def _sound(entry: FileEntry) -> bool:
    """Returns True for a plain name, so that no path leads out of the folder, and for possible numbers."""
    numbers = type(entry.size) is int and 0 <= entry.size <= SIZE_MAX and type(entry.crc32) is int
    return numbers and isinstance(entry.name, str) and NAME.fullmatch(entry.name) is not None
