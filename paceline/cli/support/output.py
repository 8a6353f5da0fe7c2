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

from paceline.observe.terminal.streams import DroppingStream


def open_standard_streams() -> None:
    """Opens the null device in place of each standard stream that is closed (`>&-`).

    Otherwise the next file or socket gets its number, and whatever a library prints goes there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number, which is this one
    # Python has None for a stream that was closed when it started.
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False, encoding="utf-8")
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False, encoding="utf-8")
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False, encoding="utf-8")


def _reconfigure(stream: io.TextIOWrapper, errors: str | None) -> None:
    """Sets how the stream treats characters that its encoding lacks; a stream that cannot be flushed keeps what it
    has.
    """
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
