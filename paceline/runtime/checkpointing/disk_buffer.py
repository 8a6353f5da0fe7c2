"""Keeps vectors on disk until somebody asks for them, so that keeping them takes no memory.

A snapshot is kept for half a minute and, unless a server is lost, never read. In memory it would take as much as
what it was taken of, since training goes on in other buffers. Writing a slice to disk costs one pass over it.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.core.fault_tolerance.replication import SliceState
from paceline.core.vector import Memory

SPOOLED_BYTES_MIN = 1 << 20  # what is shorter is not worth a place on disk


class _File:
    """Holds an open file without a name, so that it vanishes with this object, however the process ends. Raises
    OSError."""

    def __init__(self) -> None:
        self.number, path = tempfile.mkstemp(prefix="paceline-")
        weakref.finalize(self, os.close, self.number)
        os.unlink(path)


class DiskBuffer:
    """Writes vectors one after the other into one temporary file. Where the disk is full, they stay in memory."""

    def __init__(self, memory: Memory) -> None:
        """Makes a buffer for vectors of the kind of `memory`; vectors of another kind stay where they are."""
        self._memory, self._kind = memory, type(memory.empty(0))
        self._file: _File | None = None
        self._end = 0

    def all(self, vectors: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what to keep in place of `vectors`; `unspooled` reads each back."""
        return {name: self._put(v) for name, v in vectors.items()}

    def _put(self, v: Any) -> Any:
        """Returns a DiskVector, or `v` itself if it is short, of another kind, or the disk refuses it."""
        if type(v) is not self._kind or v.nbytes < SPOOLED_BYTES_MIN:
            return v
        try:
            return self._written(self._memory.bytes_of(v), len(v))
        except OSError:
            return v

    def _written(self, data: memoryview, length: int) -> DiskVector:
        """Writes all bytes; a write may take only some of them. Raises OSError."""
        if self._file is None:
            self._file = _File()
        at, begin = self._end, self._end
        while data.nbytes:
            sent = os.pwrite(self._file.number, data, at)
            data, at = data[sent:], at + sent
        self._end = at
        return DiskVector(self._memory, self._file, begin, length)


@dataclass(frozen=True, slots=True)
class DiskVector:
    """Describes `length` float32 numbers from byte `begin` of `file`."""

    memory: Memory
    file: _File
    begin: int
    length: int

    def read(self) -> Any:
        """Returns the vector. Raises OSError when the disk fails."""
        v, at = self.memory.empty(self.length), self.begin
        room = self.memory.bytes_of(v)
        while room.nbytes:
            got = os.preadv(self.file.number, [room], at)
            if not got:
                raise OSError(f"a snapshot on disk ends {room.nbytes} bytes too early")
            room, at = room[got:], at + got
        return v


def unspooled(v: Any) -> Any:
    """Returns `v`, read back if it lies on disk."""
    return v.read() if isinstance(v, DiskVector) else v


def on_disk(state: SliceState, spool: DiskBuffer) -> SliceState:
    """Returns `state` with its long vectors on disk."""
    return SliceState(spool.all(state.vectors), state.facts)
