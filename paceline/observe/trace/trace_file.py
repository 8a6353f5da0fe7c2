"""Writes and reads `trace.jsonl`: one record a line, written while the run goes on and readable after it was killed.

The rule of this file: whoever appends never waits for the disk. Records are kept as they are, and a thread of the
writer's own turns them into text, so that a worker or server pays for one list append.

    append      -> buffer                    any thread
    _drain      -> lines -> file, flush      the writer's thread, at most every FLUSH_S
    a kill      loses the buffer, and may tear the last line, which readers leave out and the next writer cuts off
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from paceline.core.errors import PacelineError
from paceline.core.files.regular_file import open_regular
from paceline.core.trace import LinkTraffic, Record, Span, from_dict, to_dict
from paceline.observe.trace.compaction import Thinner

TRACE = "trace.jsonl"
LINE_BYTES_MAX = 4 << 20
"""Bytes of a record's line, at most: one that names 10,000 workers has 60 KiB."""
"""The file with the trace, in a run's folder."""
FLUSH_S = 1.0
"""Seconds that a record stays in memory at most, and so what a killed run may lose."""
BUFFERED_MAX = 8192
"""Records that make the writer flush early, so that a burst cannot fill the memory."""


class TraceWriter:
    """Appends records to `path`, from any thread. What comes after `close` is dropped.

        bytes_max  the file's size, which `compaction` keeps it within; 0 for any
        lost       is called once, with a line, when the file cannot be written any more, on the writer's thread; the
                   trace then ends there. Without it that is a PacelineError, raised at the next `append` or at `close`

    Raises PacelineError if the file cannot be opened.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, bytes_max: int = 0, lost: Callable[[str], None] | None = None
    ) -> None:
        self.path = Path(path)
        self._thinner = Thinner(bytes_max) if bytes_max else None
        self._buffer: list[Record] = []
        self._closed = False
        self._lost = lost
        self._failed: Exception | None = None
        self._changed = threading.Condition()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _mend(self.path)
            self._file = self.path.open("ab")
            self._written = self._file.tell()
        except OSError as error:
            raise _unwritable(self.path, error) from error
        self._thread = threading.Thread(target=self._drain, name="trace writer", daemon=True)
        self._thread.start()

    def append(self, record: Record) -> None:
        """Queues a record. Raises PacelineError if an earlier one could not be written and nobody else was told."""
        with self._changed:
            if self._failed is not None:
                raise _unwritable(self.path, self._failed) from self._failed
            if self._closed:
                return
            self._buffer.append(record)
            if len(self._buffer) in (1, BUFFERED_MAX):
                self._changed.notify()

    def close(self) -> None:
        """Writes everything appended so far. Closing twice is harmless. Raises PacelineError as `append` does."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        if self._failed is not None:
            raise _unwritable(self.path, self._failed) from self._failed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def _drain(self) -> None:
        """Writes what is queued, on the writer's thread, until `close`."""
        with contextlib.suppress(OSError), self._file:  # closing would write once more what could not be written
            while self._wait():
                with self._changed:
                    records, self._buffer = self._buffer, []
                if not self._write(records):
                    return
            if self._thinner is not None:
                rest, self._thinner = [*self._thinner.rest()], None
                self._write(rest)

    def _write(self, records: Sequence[Record]) -> bool:
        """Writes records; returns False if the file cannot be written, which ends the trace."""
        try:
            self._file.writelines(self._lines(records))
            self._file.flush()
        except (OSError, TypeError, ValueError) as error:
            with self._changed:
                self._failed, self._closed = None if self._lost else error, True
            if self._lost:
                self._lost(f"{_unwritable(self.path, error)}; it ends here, and training goes on")
            return False
        return True

    def _lines(self, records: Iterable[Record]) -> Iterator[bytes]:
        """Yields the lines of records; where the file has a limit, of what is kept of them."""
        for record in records:
            for kept in (record,) if self._thinner is None else self._thinner.add(record, self._written):
                line = _encode(kept)
                self._written += len(line)
                yield line

    def _wait(self) -> bool:
        """Waits until there is something to write and it was gathered for long enough; returns False when all is
        written."""
        with self._changed:
            self._changed.wait_for(lambda: self._buffer or self._closed)
            self._changed.wait_for(lambda: self._closed or len(self._buffer) >= BUFFERED_MAX, timeout=FLUSH_S)
            return bool(self._buffer)


def read_trace(path: str | os.PathLike[str]) -> Iterator[Record]:
    """Yields every record, in the order in which it was written; a torn last line (the run was killed) is left out.

    Raises PacelineError, naming file and line, for anything else that is not a record.
    """
    try:
        with open_regular(path) as file:
            for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES_MAX), b""), start=1):
                if len(line) == LINE_BYTES_MAX:
                    raise PacelineError(f"{path}, line {number}: longer than {LINE_BYTES_MAX} bytes")
                try:
                    yield _decode(line)
                except (ValueError, KeyError, TypeError, RecursionError) as error:
                    if not line.endswith(b"\n"):
                        return
                    raise PacelineError(f"{path}, line {number}: not a trace record ({_what(error)})") from error
    except OSError as error:
        raise PacelineError(f"{path}: the trace cannot be read ({error.strerror})") from error


def is_timed(record: Record) -> bool:
    """Returns True if the record's time, and its length if it has one, are finite: not so in a run gone wrong."""
    return math.isfinite(record.at + record.seconds if isinstance(record, Span | LinkTraffic) else record.at)


def _encode(record: Record) -> bytes:
    """Returns a record as a line of JSON."""
    # default: the scalars of numpy and torch, which like to hide among plain numbers
    return json.dumps(to_dict(record), separators=(",", ":"), default=float).encode() + b"\n"


def _decode(line: bytes) -> Record:
    """Returns the record of a line. Raises ValueError for a line that is none."""
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError("not an object")
    return from_dict(fields)


def _what(error: Exception) -> str:
    """Returns what is wrong with a line, in a few words."""
    return f"no kind {error.args[0]!r}" if isinstance(error, KeyError) else str(error).splitlines()[0]


def _mend(path: Path) -> None:
    """Cuts off the torn last line of a killed run, which would otherwise spoil the first line written now."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        tail = b""
        for line in file:
            tail = line
        if tail and not tail.endswith(b"\n"):
            file.truncate(file.seek(0, os.SEEK_END) - len(tail))


def _unwritable(path: Path, error: Exception) -> PacelineError:
    """Returns the error for a trace that the disk does not take."""
    return PacelineError(f"{path}: the trace cannot be written ({getattr(error, 'strerror', None) or error})")
