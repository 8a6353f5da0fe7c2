"""Reads a trace while somebody writes it: whole lines only, and from the beginning where another run has begun."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec

from paceline.core.errors import PacelineError
from paceline.core.files.regular_file import open_regular
from paceline.core.trace import Record, from_dict
from paceline.observe.trace.trace_file import LINE_BYTES_MAX

CHUNK_BYTES = 1 << 20
"""Bytes of one `read`, so that a reader of a long trace can show something in between."""


class Follower:
    """Reads what has come since the last time. `begun_anew`: the file is another one than before.

    `path` may be set to another file at any time between two reads.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.begun_anew = False
        self._inode = self._at = self._size = self._line = 0
        self._torn = b""

    @property
    def fraction(self) -> float:
        """Returns how much of the file has been read, from 0 to 1."""
        return self._at / self._size if self._size else 0.0

    def read(self) -> list[Record]:
        """Returns the next records, at most a MiB of them; [] when there is nothing new, or no file yet.

        Raises PacelineError, naming the line, for a whole line that is not a record.
        """
        self.begun_anew = False
        try:
            with open_regular(self.path) as file:
                self._look(os.fstat(file.fileno()))
                file.seek(self._at)
                chunk = file.read(CHUNK_BYTES)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise PacelineError(f"{self.path}: the trace cannot be read ({error.strerror})") from error
        self._at += len(chunk)
        *lines, self._torn = (self._torn + chunk).split(b"\n")
        if len(self._torn) > LINE_BYTES_MAX:
            raise PacelineError(f"{self.path}, line {self._line + len(lines) + 1}: longer than {LINE_BYTES_MAX} bytes")
        return [self._record(line) for line in lines]

    def _look(self, found: os.stat_result) -> None:
        """Begins at the beginning where the file is another one, or was cut."""
        if self._inode and (found.st_ino != self._inode or found.st_size < self._at):
            self.begun_anew = True
            self._at, self._line, self._torn = 0, 0, b""
        self._inode, self._size = found.st_ino, found.st_size

    def _record(self, line: bytes) -> Record:
        """Returns the record of a line. Raises PacelineError."""
        self._line += 1
        try:
            return from_dict(_decode(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PacelineError(f"{self.path}, line {self._line}: not a trace record ({error})") from error


def _decode(line: bytes) -> Any:
    """Returns the JSON of a line. msgspec takes half as long, but refuses the NaN and Infinity of a run that
    diverges."""
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError:
        return json.loads(line)
