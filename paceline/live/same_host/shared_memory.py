"""Memory of this process that other processes of the host may read.

It comes from anonymous files (memfd), so nothing of it has a name in the file system, and the kernel takes it back when
the last process that maps it is gone, however it went. A file is mapped for writing here and then sealed: its length
stays, so whoever maps it can never read beyond its end; and nobody, whichever way it opens the file, writes to it or
maps it for writing. Only this process's own mapping, which was there before, is written to.

A sealed file gives none of its pages back but all of them. So long pieces have files of their own, while there are not
too many, and short ones share a file, in which what nobody uses is used again.

Linux 5.1 or later: `Segments.available()` tells.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
import weakref
from bisect import insort
from collections import deque
from collections.abc import Callable, Collection

from paceline.core.errors import ConfigError
from paceline.live.same_host.file_mapping import can_seal, map_shared, seal, use_huge_pages

BLOCK_BYTES = 64 << 20
"""Bytes of a file that short pieces share: address space, as memory is taken page by page when written."""
OWN_BYTES_MIN = 1 << 20
"""Bytes of a piece from which on it may have a file of its own."""
OWN_FILES_MAX = 256  # beyond which only pieces of half a block have that
HUGE_BYTES_MIN = 2 << 20
"""Bytes of a file from which on huge pages are asked for: the length of one of them."""
ALIGN_BYTES = 128
"""Bytes to which the beginnings of pieces are aligned: two cache lines."""
SEGMENTS_MAX = 1024  # of one process; each takes a descriptor here

Bytes = ctypes.Array[ctypes.c_char]


class Segment:
    """One file: where it is mapped here, and a `descriptor` for others to read it. Itself it keeps no mapping alive."""

    __slots__ = ("_mapped", "begin", "descriptor", "free", "left", "nbytes")

    def __init__(self, mapped: Bytes, descriptor: int) -> None:
        self._mapped = weakref.ref(mapped)
        self.begin, self.nbytes, self.descriptor = ctypes.addressof(mapped), ctypes.sizeof(mapped), descriptor
        self.free = [(0, self.nbytes)]  # from where to where, in order
        self.left = set[int]()  # where others may be reading whose loans have no end that could be heard of

    def room(self, nbytes: int) -> tuple[Bytes, int] | None:
        """Takes the first free `nbytes`; returns the mapping and where they are, or None where there are none."""
        mapped = self._mapped()
        if mapped is None:
            return None
        for at, (begin, end) in enumerate(self.free):
            if end - begin >= nbytes:
                self.free[at : at + 1] = [(begin + nbytes, end)] if end - begin > nbytes else []
                return mapped, begin
        return None

    def give_back(self, begin: int, end: int) -> None:
        """Makes a piece free again, which nobody uses any more, here or elsewhere.

        A piece that was left to a reader whose end nobody hears of stays taken. Neighbours that are free are joined.
        """
        if any(begin <= at < end for at in tuple(self.left)):
            return
        insort(self.free, (begin, end))
        joined: list[tuple[int, int]] = []
        for one in self.free:
            if joined and joined[-1][1] == one[0]:
                joined[-1] = joined[-1][0], one[1]
            else:
                joined.append(one)
        self.free = joined


def _make(number: int, nbytes: int) -> tuple[Bytes, int]:
    """Returns a sealed file, mapped for writing, and a descriptor that can only be read. Raises OSError."""
    file = os.memfd_create(f"paceline {number}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(file, nbytes)
        mapped = map_shared(file, nbytes, write=True)
        seal(file)
        descriptor = os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(file)
    if nbytes >= HUGE_BYTES_MIN:
        use_huge_pages(mapped)
    return mapped, descriptor


def _drop(segments: dict[int, Segment], number: int, descriptor: int) -> None:
    """Forgets a segment whose mapping is gone, and closes its descriptor.

    The garbage collector calls it in the middle of anything. Each of these is atomic, and none takes a lock.
    """
    # By garbage collection, in the middle of anything: each of these is atomic, and none takes a lock.
    segments.pop(number, None)
    os.close(descriptor)


class Segments:
    """Holds all memory of this process that others of the host may read.

    There is one for the process, made when it is known that it has company on its host. `prepare` is called with each
    new mapping before anything of it is used.
    """

    def __init__(self) -> None:
        self.prepare: Callable[[Bytes], None] = lambda mapped: None
        self._made = 0
        self._lock = threading.Lock()
        self._block: Bytes | None = None  # the newest that pieces share, kept though nothing of it is in use
        self._segments: dict[int, Segment] = {}
        self._shared: list[int] = []  # those that pieces share
        self._unused: deque[tuple[int, int, int]] = deque()  # number, begin and end of pieces nobody uses any more

    @staticmethod
    def available() -> bool:
        """Returns True on Linux 5.1 or later."""
        return sys.platform == "linux" and can_seal()

    def make(self, nbytes: int) -> memoryview | None:
        """Returns room for `nbytes` of arbitrary content, or None: too many segments, or no more memory.

        The memory is used again, or goes back to the system, when the view and all that was made from it is gone.
        """
        with self._lock:
            if nbytes >= (OWN_BYTES_MIN if len(self._segments) < OWN_FILES_MAX else BLOCK_BYTES // 2):
                opened = self._open(nbytes)
                return None if opened is None else memoryview(opened[1]).cast("B")[:nbytes]
            size = -(-nbytes // ALIGN_BYTES) * ALIGN_BYTES
            return self._found(size, nbytes) or self._from_new_block(size, nbytes)

    def _found(self, size: int, nbytes: int) -> memoryview | None:
        """Returns a piece of a file that pieces share, or None where none has room.

        What the garbage collector has noted as unused is made free here, under the lock, and not when it notes it.
        """
        while self._unused:
            number, begin, end = self._unused.popleft()
            if segment := self._segments.get(number):
                segment.give_back(begin, end)
        self._shared = [number for number in self._shared if number in self._segments]
        for number in self._shared:
            segment = self._segments.get(number)
            if segment and (room := segment.room(size)):
                return self._piece(number, *room, size, nbytes)
        return None

    def _from_new_block(self, size: int, nbytes: int) -> memoryview | None:
        """Returns a piece of a new file; None where none can be made."""
        opened = self._open(BLOCK_BYTES)
        if opened is None:
            return None
        number, self._block = opened
        self._shared.append(number)
        room = self._segments[number].room(size)
        assert room is not None
        return self._piece(number, *room, size, nbytes)

    def _piece(self, number: int, mapped: Bytes, begin: int, size: int, nbytes: int) -> memoryview:
        """Returns a piece of a mapping as an object of its own.

        Every view of the piece keeps it, whatever made the view, and the piece keeps the mapping. So its end is the
        moment at which nobody here uses the memory any more.
        """
        piece = (ctypes.c_char * nbytes).from_buffer(mapped, begin)
        # In a forked child, too, which has these objects: there it changes a copy of the list.
        weakref.finalize(piece, self._unused.append, (number, begin, begin + size)).atexit = False
        return memoryview(piece).cast("B")

    def _open(self, nbytes: int) -> tuple[int, Bytes] | None:
        """Makes a file of at least `nbytes`; returns its number and mapping, or None where none can be made."""
        if len(self._segments) >= SEGMENTS_MAX:
            return None
        number, pages = self._made + 1, -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            mapped, descriptor = _make(number, pages)
        except OSError:
            return None
        self.prepare(mapped)
        self._made += 1
        self._segments[number] = Segment(mapped, descriptor)
        weakref.finalize(mapped, _drop, self._segments, number, descriptor).atexit = False
        return number, mapped

    def find(self, address: int, nbytes: int) -> tuple[int, int] | None:
        """Returns segment and offset of what lies at `address`; None when that is other memory."""
        for number, segment in self._segments.copy().items():  # whole, as others add and drop
            begin = segment.begin
            if begin <= address and address + nbytes <= begin + segment.nbytes:
                return number, address - begin
        return None

    def opened(self, number: int) -> tuple[int, int]:
        """Returns descriptor and length of a segment of which something is in use."""
        segment = self._segments[number]
        return segment.descriptor, segment.nbytes

    def leave(self, address: int, nbytes: int) -> None:
        """Never uses what lies there again, for as long as its segment is: somebody may still read it."""
        found = self.find(address, nbytes)
        if found is not None:
            number, offset = found
            self._segments[number].left.add(offset)

    @property
    def dropped(self) -> int:
        """Returns how many segments are gone."""
        return self._made - len(self._segments)

    def gone(self, numbers: Collection[int]) -> list[int]:
        """Returns which of these are gone."""
        return [number for number in numbers if number not in self._segments]


_segments: dict[int, Segments] = {}  # by process, as a forked child must not hand out its parent's memory


def segments_for(transport: str) -> Segments | None:
    """Returns the shared memory of this process for `auto`, `shm` or `tcp`; None where vectors go through sockets.

    Raises ConfigError for `shm` where memory cannot be shared.
    """
    if transport == "tcp":
        return None
    if not Segments.available():
        if transport == "shm":
            raise ConfigError("--transport shm shares memory as only Linux 5.1 and later can: use --transport auto")
        return None
    return _segments.setdefault(os.getpid(), Segments())
