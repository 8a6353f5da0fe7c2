"""Memory of this process that other processes of the host may read.

It comes from anonymous files (memfd), so nothing of it has a name in the file system, and the kernel takes it back when
the last process that maps it is gone, however it went. A file is sealed against shrinking: whoever maps it can never
read beyond its end. Others get a descriptor that can only be read.

Linux only: `Segments.available()` tells.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import itertools
import mmap
import os
import sys
import threading
import weakref
from collections.abc import Collection

from paceline.core.errors import ConfigError

BLOCK_BYTES = 64 << 20  # of address space; memory is taken page by page when it is written
HUGE_BYTES_MIN = 2 << 20
ALIGN_BYTES = 128
SEGMENTS_MAX = 1024  # of one process; each takes two descriptors here and one in every process that reads it

_Where = tuple[int, int, int, set[int]]
"""Of a segment: first address, length, descriptor, where it is read though nobody has told of it."""


class Segment:
    """One file, mapped here for writing; `descriptor` is for others, to read."""

    __slots__ = ("__weakref__", "_map", "begin", "descriptor", "nbytes", "number", "read", "used")

    def __init__(self, number: int, nbytes: int) -> None:
        """Raises OSError when the system gives none."""
        file = os.memfd_create(f"paceline {number}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(file, nbytes)
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            self._map = mmap.mmap(file, nbytes)
            self.descriptor = os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(file)
        if nbytes >= HUGE_BYTES_MIN:
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self.number, self.nbytes, self.used = number, nbytes, 0
        self.read = set[int]()  # where others may be reading whose loans have no end that could be heard of
        self.begin = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def room(self, nbytes: int) -> memoryview:
        """The next `nbytes`, which nobody else gets; they keep the mapping.

        Once nothing of them is in use here any more, their pages go back to the system, though the rest of the segment
        is in use. As an object of their own, since every view of them, whatever made it, keeps that.
        """
        begin = self.used
        self.used += -(-nbytes // ALIGN_BYTES) * ALIGN_BYTES
        piece = (ctypes.c_char * nbytes).from_buffer(self._map, begin)
        weakref.finalize(piece, _empty, self._map, self.read, begin, begin + nbytes, os.getpid()).atexit = False
        return memoryview(piece).cast("B")

    @property
    def left(self) -> int:
        return self.nbytes - self.used

    def drop_from(self, places: dict[int, _Where]) -> None:
        """Once nothing of it is in use here any more; on any thread."""
        weakref.finalize(self._map, _drop, places, self.number, self.descriptor).atexit = False


def _empty(pages: mmap.mmap, read: set[int], begin: int, end: int, owner: int) -> None:
    # As `_drop`. A forked child has the objects too, but the memory is its parent's.
    if any(begin <= at < end for at in tuple(read)):
        return
    begin, end = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
    if begin < end and os.getpid() == owner:
        with contextlib.suppress(OSError):
            pages.madvise(mmap.MADV_REMOVE, begin, end - begin)


def _drop(places: dict[int, _Where], number: int, descriptor: int) -> None:
    # By garbage collection, in the middle of anything: each of these is atomic, and none takes a lock.
    places.pop(number, None)
    os.close(descriptor)


class Segments:
    """All of this process. One for the process, made when it is known that it has company on its host."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._block: Segment | None = None  # where small pieces are taken from
        self._places: dict[int, _Where] = {}

    @staticmethod
    def available() -> bool:
        return sys.platform == "linux" and hasattr(os, "memfd_create") and hasattr(mmap, "MADV_REMOVE")

    def make(self, nbytes: int) -> memoryview | None:
        """Room for `nbytes`; None when there are too many segments or the system gives no more.

        The memory goes back to the system when the view, and all that was made from it, is gone.
        """
        with self._lock:
            block = self._block
            if block is None or block.left < nbytes:
                block = self._open(max(nbytes, BLOCK_BYTES))
                if block is None:
                    return None
                if nbytes < BLOCK_BYTES // 2:
                    self._block = block
            return block.room(nbytes)

    def _open(self, nbytes: int) -> Segment | None:
        if len(self._places) >= SEGMENTS_MAX:
            return None
        pages = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            segment = Segment(next(self._numbers), pages)
        except OSError:
            return None
        self._places[segment.number] = segment.begin, segment.nbytes, segment.descriptor, segment.read
        segment.drop_from(self._places)
        return segment

    def find(self, address: int, nbytes: int) -> tuple[int, int] | None:
        """Segment and offset of what lies at `address`; None when that is other memory."""
        for number, (begin, length, _, _) in self._places.copy().items():  # whole, as others add and drop
            if begin <= address and address + nbytes <= begin + length:
                return number, address - begin
        return None

    def opened(self, number: int) -> tuple[int, int]:
        """Descriptor and length of a segment of which something is in use."""
        _, length, descriptor, _ = self._places[number]
        return descriptor, length

    def leave(self, address: int, nbytes: int) -> None:
        """What lies there, and is in use now, keeps its pages for as long as its segment is: somebody may read it."""
        found = self.find(address, nbytes)
        if found is not None:
            number, offset = found
            self._places[number][3].add(offset)

    def gone(self, numbers: Collection[int]) -> list[int]:
        """Which of these are no more."""
        return [number for number in numbers if number not in self._places]


_segments: dict[int, Segments] = {}  # by process, as a forked child must not hand out its parent's memory


def segments_for(exchange: str) -> Segments | None:
    """This process's, for an exchange that is `auto`, `shm` or `tcp`; None where vectors go through sockets.

    Raises ConfigError where memory cannot be shared and shall be.
    """
    if exchange == "tcp":
        return None
    if not Segments.available():
        if exchange == "shm":
            raise ConfigError("--transport shm shares memory as only Linux can: use --transport auto")
        return None
    return _segments.setdefault(os.getpid(), Segments())
