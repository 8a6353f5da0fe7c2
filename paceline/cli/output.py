"""Standard output and standard error of a command that runs something: whether they can be written decides nothing.

`paceline train ... 2>&1 | tee log` loses both streams when `tee` is killed first, as Ctrl-C may do; a log file may lie
on a disk that is full. The run goes on and leaves its files; what can no longer be shown is dropped.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO


class DroppingStream:
    """A text stream that drops what cannot be written, and everything after it."""

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


def _reconfigure(stream: io.TextIOWrapper, errors: str | None) -> None:
    with contextlib.suppress(OSError, ValueError):  # it flushes, and the stream may be full or closed
        stream.reconfigure(errors=errors)


@contextlib.contextmanager
def replacing_unprintable() -> Iterator[None]:
    """Makes standard output replace what its encoding lacks, until the context ends; such as ASCII, under LC_ALL=C."""
    stream = sys.stdout
    if not isinstance(stream, io.TextIOWrapper):
        yield
        return
    before, unicode = stream.errors, stream.encoding.lower().startswith("utf")
    _reconfigure(stream, "backslashreplace" if unicode else "replace")
    try:
        yield
    finally:
        _reconfigure(stream, before)


@contextlib.contextmanager
def dropping_output() -> Iterator[None]:
    """Makes both standard streams drop what cannot be written, until the context ends."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = DroppingStream(sys.stdout), DroppingStream(sys.stderr)
    try:
        yield
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        sys.stdout, sys.stderr = before
