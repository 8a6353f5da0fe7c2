"""Writes and reads a recording: JSON lines, compressed as they are written.

    recording/coordinator.jsonl.gz      `zcat` prints it, also that of a process that was killed

Every line with `flush=True` is with the kernel when `append` returns, so kill -9 of the process loses nothing of it.
A power cut may: nothing waits for the disk. Where the process ended in the middle of a line, readers leave that line
out. A recording has a size that it does not exceed:

    keeps="first"    ends when it is full, since a replay begins at the beginning
    keeps="last"     becomes NAME.old.jsonl.gz when it is half full, and begins anew; what was .old is dropped
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from paceline.core.errors import ConfigError
from paceline.live.recording.message_text import json_of

FOLDER = "recording"
SUFFIX = ".jsonl.gz"
FORMAT = 1
_GZIP = 31  # zlib's `wbits` for a gzip header
_CHUNK_BYTES = 1 << 16


class RecordingWriter:
    """Appends lines to the recording of one process, from any thread. It never fails: it ends, and says why once."""

    def __init__(
        self,
        path: Path,
        bytes_max: int,
        header: dict[str, Any],
        *,
        keeps: Literal["first", "last"] = "first",
        lost: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Creates the file, readable by its owner only. `lost` is called with a line for the user when it ends early.

        header: what a reader has to know; each file of a recording begins with it.
        """
        self._path, self._header = path, {"format": FORMAT, **header}
        self._keeps, self._lost = keeps, lost
        self._room = bytes_max if keeps == "first" else bytes_max // 2  # of one file
        self._lock = threading.Lock()
        self._fd = -1
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._begin()
        except OSError as error:
            self._end_with(error)

    def append(self, line: Any, *, flush: bool = True) -> None:
        """Appends one JSON value. Without `flush` it is written together with the next line."""
        with self._lock:
            if self._fd < 0:
                return
            try:
                self._write(line, flush=flush)
                if self._bytes >= self._room:
                    self._make_room()
            except (OSError, TypeError, ValueError) as error:
                self._end_with(error)

    def close(self) -> None:
        with self._lock:
            try:
                self._finish()
            except OSError as error:
                self._end_with(error)

    @property
    def ended(self) -> bool:
        """Returns True once nothing more is recorded."""
        return self._fd < 0

    def _end_with(self, error: Exception) -> None:
        """Ends the recording because of `error`, and says so."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)
        why = getattr(error, "strerror", None) or str(error)
        self._lost(f"{self._path}: {why}; the run goes on, and is not recorded any more")

    def _begin(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._gzip = zlib.compressobj(wbits=_GZIP)
        self._bytes = 0
        self._write(self._header, flush=True)

    def _write(self, line: Any, *, flush: bool) -> None:
        data = self._gzip.compress(f"{json_of(line)}\n".encode(errors="surrogatepass"))
        if flush:
            data += self._gzip.flush(zlib.Z_SYNC_FLUSH)
        self._put(data)

    def _put(self, data: bytes) -> None:
        self._bytes += len(data)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def _make_room(self) -> None:
        if self._keeps == "last":
            self._finish()
            os.replace(self._path, self._path.with_name(self._path.name.replace(SUFFIX, f".old{SUFFIX}")))
            self._begin()
        else:
            self._write(["full"], flush=True)
            self._finish()
            self._lost(f"{self._path}: full at {self._bytes / 2**20:.0f} MiB; later inputs are not recorded")

    def _finish(self) -> None:
        if self._fd >= 0:
            self._put(self._gzip.flush(zlib.Z_FINISH))
            os.close(self._fd)
            self._fd = -1


def read_recording(path: Path) -> Iterator[Any]:
    """Yields the lines of a recording, the header first; an unfinished last line is left out.

    A file that is called `.jsonl` is read as it is. Raises ConfigError for what cannot be read or is damaged.
    """
    number, whole = 0, b""
    try:
        with path.open("rb") as file:
            unpack = (lambda data: data) if path.suffix == ".jsonl" else zlib.decompressobj(_GZIP).decompress
            while data := file.read(_CHUNK_BYTES):
                *lines, whole = (whole + unpack(data)).split(b"\n")
                for line in lines:
                    number += 1
                    yield json.loads(line)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (zlib.error, ValueError) as error:
        raise ConfigError(f"{path}: damaged after line {number}: {error}") from None
