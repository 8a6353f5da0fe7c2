"""Vectors that wait on disk until somebody asks for them, so that to keep them takes no memory.

A snapshot is kept for half a minute and, but for a lost server, never read. In memory it would take as much as what it
was taken of, since that goes on in other buffers. To write a slice down costs one pass over it.
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
    """Without a name, so that it is gone with this, whatever becomes of the process. Raises OSError."""

    def __init__(self) -> None:
        self.number, path = tempfile.mkstemp(prefix="paceline-")
        weakref.finalize(self, os.close, self.number)
        os.unlink(path)


class DiskBuffer:
    """This is one file in the folder for temporary ones. Where there is no room on disk vectors stay in memory."""

    def __init__(self, memory: Memory) -> None:
        """Of the vectors that shall wait on disk; those of another kind stay where they are."""
        self._memory, self._kind = memory, type(memory.empty(0))
        self._file: _File | None = None
        self._end = 0

    def all(self, vectors: Mapping[str, Any]) -> dict[str, Any]:
        """What to keep in place of `vectors`, each to be had again by `unspooled`."""
        return {name: self._put(v) for name, v in vectors.items()}

    def _put(self, v: Any) -> Any:
        if type(v) is not self._kind or v.nbytes < SPOOLED_BYTES_MIN:
            return v
        try:
            return self._written(self._memory.bytes_of(v), len(v))
        except OSError:
            return v

    def _written(self, data: memoryview, length: int) -> DiskVector:
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
    """`length` float32 numbers from byte `begin` of `file`."""

    memory: Memory
    file: _File
    begin: int
    length: int

    def read(self) -> Any:
        """Raises OSError when the disk fails."""
        v, at = self.memory.empty(self.length), self.begin
        room = self.memory.bytes_of(v)
        while room.nbytes:
            got = os.preadv(self.file.number, [room], at)
            if not got:
                raise OSError(f"a snapshot on disk ends {room.nbytes} bytes too early")
            room, at = room[got:], at + got
        return v


def unspooled(v: Any) -> Any:
    return v.read() if isinstance(v, DiskVector) else v


def on_disk(state: SliceState, spool: DiskBuffer) -> SliceState:
    return SliceState(spool.all(state.vectors), state.facts)
