"""Vectors that pass over one connection by reference, because both its ends are on one host.

    lender                                                   borrower
    keeps the vector as it is, numbers the loan
    Opened, with a descriptor, once for each segment   ->    maps the segment, read-only
    a frame with (segment, offset, loan)               ->    reads the vector where it lies
                                                       <-    the numbers of loans that are over, in the header of the
                                                             next frame, or in BuffersReleased after RETURN_SECONDS
    may use the memory again
    Closed, when a segment is no more                  ->    unmaps it

When the connection ends, so do all loans. The borrower may still read what it has, so the lender never reuses that
memory while its segment lives (`Segments.leave`).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast, runtime_checkable

from paceline.core.errors import PeerLost, ProtocolError
from paceline.core.message import message
from paceline.core.validation import bounds
from paceline.core.vector import Memory
from paceline.live.protocol.frames import ITEM_BYTES, SharedRef
from paceline.live.same_host import unix_socket
from paceline.live.same_host.shared_memory import SEGMENTS_MAX, Bytes, Segments

LENT_BYTES_MIN = 64 << 10  # what is shorter goes through the socket, which costs about the same
LOANS_MAX = 1 << 16  # that one borrower may have; what is beyond goes through the socket
RETURNS_MAX = 2048  # in one frame
RETURN_SECONDS = 0.1
BORROWED_BYTES_MAX = 1 << 40  # of address space, for all segments of one lender


@message("sharing.Opened", plane="connection")
class Opened:
    """The lender's segment `number` of `nbytes` bytes may be referred to; its descriptor came with this or before."""

    number: bounds.Count
    nbytes: bounds.Count


@message("sharing.Closed", plane="connection")
class Closed:
    """The lender has no use for these segments any more; the borrower keeps what it still reads."""

    numbers: bounds.Counts


@message("sharing.Over", plane="connection")
class BuffersReleased:
    """Carries nothing but the loans that are over, in its header."""


OWN_MESSAGES = frozenset({Opened, Closed, BuffersReleased})
"""Messages for the ends of the connection themselves; the last has nothing but its header."""


@runtime_checkable
class SharedMemory(Memory, Protocol):
    """Says what else a driver needs of memory that is shared."""

    def mapped(self, memory: Bytes, *, writable: bool) -> None:
        """Prepares a mapping that processes share, before anything of it is used."""

    def shareable(self, v: Any) -> Any:
        """Returns `v`, or a copy of it in host memory where it lies elsewhere."""

    def address_of(self, v: Any) -> int:
        """Returns the address of the bytes of `v` in this process; 0 if they are not in host memory."""

    def view(self, room: memoryview, begin: int, length: int, over: Callable[[int], object], loan: int) -> Any:
        """Returns a vector of the `length` elements that lie `begin` bytes into `room`, a whole mapping.

        `over(loan)` is called, on any thread, when it is freed.
        """


@functools.cache
def _can_be_shared(memory: type) -> bool:
    """Returns True if such memory can be shared; cached, since the check takes 40 us and each caller asks."""
    return issubclass(memory, SharedMemory)


class ZeroCopy:
    """This handles both directions of one connection. `take` and `heard` are called on the loop's thread, the rest on
    any.
    """

    def __init__(
        self,
        segments: Segments,
        memory: Memory,
        sock: unix_socket.UnixStream,
        *,
        tell: Callable[[Any], None],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        """`tell` sends a message ahead of all vectors; `later` runs something on the loop's thread.

        Raises TypeError for memory that cannot be shared.
        """
        if not _can_be_shared(type(memory)):
            raise TypeError(f"{type(memory).__name__} cannot be shared")
        self._segments, self._memory, self._sock = segments, cast(SharedMemory, memory), sock
        self._tell, self._later = tell, later
        self._showing, self._counting = threading.Lock(), threading.Lock()
        self._numbers = itertools.count(1)
        self._lent: dict[int, Any] = {}  # by number of the loan: what keeps the memory as it is
        self._shown: dict[int, None] = {}  # segments that the other side knows
        self._dropped = 0  # segments, when it was told last which are no more
        self._maps: dict[int, memoryview] = {}  # the other side's segments
        self._over: deque[int] = deque()  # loans to be given back
        self._borrowed = 0
        self._returning = self._ended = False
        self.admitted = False  # the other side has said that it belongs to the run
        self.bytes_lent = self.bytes_borrowed = 0

    # ---- lending -----------------------------------------------------------------------------------------
    def lend(self, v: Any) -> SharedRef | None:
        """Returns a reference to `v`, which must not change until it is given back; None if its bytes must travel."""
        nbytes = v.nbytes
        if nbytes < LENT_BYTES_MIN or len(self._lent) >= LOANS_MAX:
            return None
        v = self._memory.shareable(v)
        found = self._segments.find(self._memory.address_of(v), nbytes)
        if found is None:
            return None
        segment, offset = found
        if segment not in self._shown:
            self._show(segment)
        elif self._dropped != self._segments.dropped:
            with self._showing:
                self._forget()
        loan = next(self._numbers)
        self._lent[loan] = v
        self.bytes_lent += nbytes
        return segment, offset, loan

    def _show(self, segment: int) -> None:
        """Passes a segment's descriptor to the other side, once.

        It holds a lock until the message that names the segment is queued. Another thread may refer to the segment as
        soon as it counts as shown, and that reference must arrive behind the descriptor.
        """
        with self._showing:  # lest another thread refer to it before the other side has it
            if segment in self._shown:
                return
            self._forget()
            descriptor, nbytes = self._segments.opened(segment)
            self._sock.pass_on(descriptor)
            with contextlib.suppress(PeerLost):  # whoever refers to it hears that too
                self._tell(Opened(number=segment, nbytes=nbytes))
            self._shown[segment] = None

    def _forget(self) -> None:
        """Tells which segments are no more; their memory is freed when the other side unmaps it."""
        self._dropped = self._segments.dropped
        closed = self._segments.gone(self._shown)
        for number in closed:
            del self._shown[number]
        if closed:
            with contextlib.suppress(PeerLost):
                self._tell(Closed(numbers=tuple(closed)))

    def given_back(self, loans: Iterable[int]) -> None:
        """Ends these loans. Raises ProtocolError for one that was not lent."""
        for loan in loans:
            if self._lent.pop(loan, None) is None:
                raise ProtocolError(f"the other side returns loan {loan}, which it does not have")

    # ---- borrowing ---------------------------------------------------------------------------------------
    def take(self, place: SharedRef, length: int) -> Any:
        """Returns the vector of `length` float32 elements at `place`. Raises ProtocolError outside shared memory."""
        segment, offset, loan = place
        room = self._maps.get(segment)
        nbytes = ITEM_BYTES * length
        if room is None or offset < 0 or offset % ITEM_BYTES or offset + nbytes > room.nbytes:
            raise ProtocolError(f"{length} elements at {offset} of segment {segment} are not in the memory it shares")
        v = self._memory.view(room, offset, length, self._over.append, loan)
        self.bytes_borrowed += nbytes
        with self._counting:
            self._borrowed += 1
        if not self._returning:
            self._returning = True
            self._later(RETURN_SECONDS, self._return)
        return v

    def over(self) -> tuple[int, ...]:
        """Returns loans to give back with the frame that leaves now, at most RETURNS_MAX."""
        if not self._over:
            return ()
        loans: list[int] = []
        with self._counting:
            while self._over and len(loans) < RETURNS_MAX:
                loans.append(self._over.popleft())
            self._borrowed -= len(loans)
        return tuple(loans)

    def _return(self) -> None:
        """Gives back loans that no frame has taken along; runs every RETURN_SECONDS while something is borrowed."""
        with contextlib.suppress(PeerLost):
            while self._over and not self._ended:
                self._tell(BuffersReleased())
        self._returning = self._borrowed > 0 and not self._ended
        if self._returning:
            self._later(RETURN_SECONDS, self._return)

    def heard(self, message: Any) -> bool:
        """Handles a message for this end of the connection; returns False for one that is for the party.

        Raises ProtocolError.
        """
        if type(message) not in OWN_MESSAGES:
            return False
        if not self.admitted:
            raise ProtocolError("the other side shares memory before it has said who it is")
        match message:
            case Opened(number=number, nbytes=nbytes):
                self._open(number, nbytes)
            case Closed(numbers=numbers):
                for number in numbers:
                    self._maps.pop(number, None)
        return True

    def check(self) -> None:
        """Raises ProtocolError if a stranger, which has not said who it is, has passed descriptors."""
        if not self.admitted and self._sock.unclaimed:
            raise ProtocolError("the other side passes descriptors before it has said who it is")

    def _open(self, number: int, nbytes: int) -> None:
        """Maps a segment of the other side for reading.

        Raises ProtocolError for a number that is there already, too many segments, or more memory than may be mapped.
        """
        if number in self._maps or len(self._maps) >= SEGMENTS_MAX:
            raise ProtocolError(f"the other side shares segment {number} twice, or more than {SEGMENTS_MAX}")
        if not 0 < nbytes <= BORROWED_BYTES_MAX - sum(room.nbytes for room in self._maps.values()):
            raise ProtocolError(f"the other side shares a segment of {nbytes} bytes, more than can be mapped")
        descriptor = self._sock.passed()
        try:
            room = unix_socket.map_read_only(descriptor, nbytes)
        finally:
            os.close(descriptor)
        self._memory.mapped(cast(Bytes, room.obj), writable=False)
        self._maps[number] = room

    def end(self) -> None:
        """Ends all loans with the connection. The other side may still read, so that memory is not used again."""
        self._ended = True
        for v in list(self._lent.values()):
            self._segments.leave(self._memory.address_of(v), v.nbytes)
        self._lent.clear()
        self._maps.clear()
        with self._counting:  # a thread that sends may be taking them out
            self._over.clear()
        self._sock.drop_passed()
