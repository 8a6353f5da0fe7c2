"""Provides text streams whose writers do not care whether anybody, or any disk, takes what they write."""

from __future__ import annotations

import contextlib
import os
from typing import Any, TextIO


class DroppingStream:
    """Writes to a text stream, and drops what cannot be written and everything after it.

    The output of a run may be a pipe whose reader has gone, or a file on a full disk. Neither may end the run.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Returns the number of characters given, written or dropped."""
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            encoding = self._stream.encoding or "ascii"
            self._stream.write(text.encode(encoding, errors="replace").decode(encoding))
        except OSError:
            discard(self._stream)
        return len(text)

    def flush(self) -> None:
        """Flushes the stream; one that nobody reads any more is discarded."""
        try:
            self._stream.flush()
        except OSError:
            discard(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def discard(stream: TextIO) -> None:
    """Points the file of `stream` to the null device, so that its buffer can be flushed when the interpreter exits."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: the stream is closed, or has no file
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
