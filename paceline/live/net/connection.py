"""One connection sends and receives frames: over one socket, and over lanes where one stream does not fill the link.

    state       input                                    then                                            next
    STRANGER    begin                                    headers only; no bodies, no shared memory       STRANGER
    STRANGER    admit (its owner knows who it is)        bodies and shared memory from now on            OPEN
    OPEN        send                                     the kernel takes it now, or the loop later      OPEN
    OPEN        more bodies wait to leave than allowed   reading stops until the other side takes some   OPEN
    OPEN        take_over                                a waiting thread reads, until give_back         OPEN
    any         end of the stream, an error              `closed` is called once, with the cause         CLOSED
    any         bytes that are no message                the same, as LossCause.BROKE_PROTOCOL           CLOSED
    any         a frame of another version               the version of this side is told; the same      CLOSED
    STRANGER    detach                                   the socket becomes a lane of another connection CLOSED

Sending tries the socket at once, on the caller's thread, which saves a switch of threads for the usual small message.
What the kernel does not take is left to the loop, so a sender never waits for its receiver. Reading is the loop's, or
that of a thread that waits for an answer (`caller_reads.py`).
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from paceline.core.errors import PeerLost, ProtocolError
from paceline.core.vector import Memory
from paceline.live.event_loop import Loop
from paceline.live.net.frame_reader import FrameReader, Room
from paceline.live.net.send_queue import IOV_MAX, Outgoing, SendQueue
from paceline.live.net.striping import LANES_MAX, Striping
from paceline.live.net.zero_copy import ZeroCopy
from paceline.live.protocol import frames
from paceline.live.protocol.transport import Envelope, Kind, LossCause
from paceline.live.same_host.shared_memory import Segments
from paceline.live.same_host.unix_socket import UnixStream

try:
    import fcntl
    import termios
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

STRIPED_BYTES_MIN = 512 * 1024
"""Bytes of a body from which on several streams are worth their bookkeeping."""
READS_MAX = 16
"""Reads of one socket in a row, before other sockets get their turn."""


def unsent(sock: socket.socket) -> int:
    """Returns the bytes that the kernel has taken and that are not acknowledged; 0 where it does not say."""
    if fcntl is None:
        return 0
    try:
        return int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    except (OSError, ValueError):  # it is closed, or another system's
        return 0


def _raise(error: Exception) -> NoReturn:
    """Raises on the loop's thread what a handler has raised on another."""
    raise error


class Connection:
    """Sends and receives frames over one connected stream socket, and its lanes. Callbacks run on the loop's thread.

    `send` may be called from any thread; everything that changes the socket's registration runs on the loop's.
    """

    def __init__(
        self,
        sock: socket.socket,
        loop: Loop,
        memory: Memory,
        *,
        arrived: Callable[[Envelope], None],
        room: Room,
        closed: Callable[[str, LossCause], None],
        body_bytes_max: int = 0,
        segments: Segments | None = None,
    ) -> None:
        """`segments`: shared memory of this process, to lend vectors from over a Unix stream."""
        sock.setblocking(False)
        self.number = sock.fileno()
        self._reader: Callable[[], object] | None = None  # rings at the thread that reads in the loop's place
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock, self._loop, self._memory = sock, loop, memory
        self._closed = closed
        self._lock = threading.Lock()
        self._lanes = Striping(loop, taken=self._taken, left=self._go_on, closed=self.close)
        self._outbox = SendQueue(self._lanes.send)
        self._sharing: ZeroCopy | None = None
        if segments is not None and isinstance(sock, UnixStream):
            self._sharing = ZeroCopy(segments, memory, sock, tell=self._tell, later=loop.call_later)
        self._receiver = FrameReader(memory, room, arrived, body_bytes_max, self._lanes, self._sharing)
        self._pending: Callable[[], int] | None = getattr(sock, "pending", None)  # of TLS
        self._open = True
        self._bodies_max = 0
        self._sent = 0
        self.idle = threading.Event()  # set while nothing waits to be sent
        self.idle.set()

    def begin(self) -> None:
        """Starts to read. The owner must be ready before, since the first thing read may be the end of the stream."""
        self._loop.call_soon(self._watch)

    @property
    def bytes_sent(self) -> int:
        """Returns the bytes sent over the socket and all lanes, prefixes and headers included."""
        return self._sent + sum([sent for sent, _ in self._lanes.traffic])

    @property
    def bytes_received(self) -> int:
        """Returns the bytes received over the socket and all lanes."""
        return self._receiver.total + sum([received for _, received in self._lanes.traffic])

    @property
    def lanes(self) -> list[tuple[int, int]]:
        """Returns the bytes sent and received over each of the further streams."""
        return self._lanes.traffic

    @property
    def shares(self) -> bool:
        """Returns True if vectors may pass by reference."""
        return self._sharing is not None

    @property
    def bytes_shared(self) -> tuple[int, int]:
        """Returns the bytes of vectors that passed by reference, out and in."""
        return (self._sharing.bytes_lent, self._sharing.bytes_borrowed) if self._sharing else (0, 0)

    def progress(self) -> tuple[int, bool]:
        """Returns a number that grows while bytes arrive here or there, and whether some are on their way.

        Bytes that the kernel still holds for a slow link do not count as arrived, where the system tells.
        """
        kept = unsent(self._sock)
        moved = self.bytes_sent + self.bytes_received + sum(self.bytes_shared) - kept
        return moved, kept > 0 or not self.idle.is_set()

    def admit(self, body_bytes_max: int, bodies_max: int = 0) -> None:
        """Lets the other side send bodies of at most `body_bytes_max` bytes, and share memory.

        bodies_max: while so many bodies wait to be sent, nothing is read: a peer that takes no answers may not ask for
        more; 0 for no limit. One of the two sides must have none, or both could wait for the other to read.
        """
        self._receiver.body_bytes_max = body_bytes_max
        self._bodies_max = bodies_max
        if self._sharing:
            self._sharing.admitted = True

    def add_lane(self, sock: socket.socket, *, called: bool) -> None:
        """Adds a lane for large bodies, on the loop's thread; `called` by the other side. Raises ProtocolError."""
        if not self._open:
            sock.close()
        elif len(self._lanes) >= LANES_MAX or sock.family == socket.AF_UNIX:
            sock.close()
            raise ProtocolError(f"the other side opens more than {LANES_MAX} streams, or does not use TCP")
        else:
            self._lanes.add(sock, called=called)

    # ---- out ---------------------------------------------------------------------------------------------
    def send(self, envelope: Envelope) -> None:
        """Sends without waiting for the receiver, and without a copy. Raises PeerLost if the connection is closed."""
        buffers = frames.encode(envelope, self._memory, self._sharing)
        size = 0
        for view in buffers:
            size += view.nbytes
        with self._lock:
            if not self._open:
                raise PeerLost("the connection is closed")
            outbox = self._outbox
            if outbox.idle and (size < STRIPED_BYTES_MIN or not self._lanes.ready):
                done = self._send_now(envelope, buffers, size)
            else:
                blocked = len(self._outbox) > 0  # the loop goes on as soon as the kernel has room
                self._outbox.put(self._frame(envelope, buffers))
                done = blocked or self._flush()
            if done:
                return
            self.idle.clear()
        self._loop.call_soon(self._watch)

    def _tell(self, message: Any) -> None:
        """Sends a message of this connection's own, such as one that returns borrowed memory."""
        self.send(Envelope(Kind.CONTROL, message))

    def _send_now(self, envelope: Envelope, buffers: list[memoryview], size: int) -> bool:
        """Sends a message with nothing queued before it, the usual case; returns True if the kernel took it.

        It does what the queue's `put` and `flush` do in fewer calls. What the kernel does not take is queued.
        """
        try:
            sent = self._sock.sendmsg(buffers[:IOV_MAX])
        except BlockingIOError:
            sent = 0
        except OSError:
            return True  # the reading side hears the reason and tells
        self._sent += sent
        if sent == size:
            envelope.sent_at = time.monotonic()
            return True
        self._outbox.put_begun(Outgoing(envelope, buffers), sent)
        return False

    def _frame(self, envelope: Envelope, buffers: list[memoryview]) -> Outgoing:
        """Returns what is put into the queue: the frame, or its header alone with a body for the lanes."""
        if len(buffers) > 1 and self._lanes.ready and sum([view.nbytes for view in buffers[1:]]) >= STRIPED_BYTES_MIN:
            return Outgoing(envelope, [frames.striped(buffers[0])], buffers[1:])
        return Outgoing(envelope, buffers)

    def _flush(self) -> bool:
        """Gives the kernel what it takes now; returns True when nothing is left. Called under the lock."""
        try:
            self._sent += self._outbox.flush(self._sock)
        except OSError:
            self._outbox.clear()  # the reading side hears the reason and tells
        return self._outbox.idle and self._lanes.idle

    def _go_on(self, *, striped: bool = False) -> None:
        """Sends more of what waits, on the loop's thread; `striped` says that the lanes have taken a body.

        The lock is that of `send`: a thread that sends meanwhile must not come between two parts of one frame.
        """
        with self._lock:
            if striped:
                self._outbox.go_on()
            if self._flush():
                self.idle.set()
            self._watch()

    def _taken(self) -> None:
        """Goes on after the lanes have taken a body."""
        self._go_on(striped=True)

    # ---- in ----------------------------------------------------------------------------------------------
    def _ready(self, events: int) -> None:
        """Writes and reads as the selector says, on the loop's thread.

        Writing comes first, since what leaves makes room for answers to what is read.
        """
        if events & selectors.EVENT_WRITE:
            self._go_on()
        if events & selectors.EVENT_READ:
            try:
                self._read()
            except BlockingIOError:
                return
            except ProtocolError as error:
                if isinstance(error, frames.VersionMismatch):
                    with contextlib.suppress(OSError):  # it may be gone
                        self._sock.send(frames.version_notice())
                self.close(str(error), LossCause.BROKE_PROTOCOL)
            except OSError as error:
                self.close(error.strerror or str(error))

    def _read(self) -> None:
        """Reads until the socket has nothing more, at most READS_MAX times.

        After each read the connection of a stranger that has passed descriptors on is closed.
        """
        for _ in range(READS_MAX):
            missing = self._receiver.read(self._sock)
            if self._sharing:
                self._sharing.check()
            if missing is None:
                self.close("the other side closed the connection")
            if self._bodies_max and self._full:
                self._watch()
                return
            if missing or not self._open:
                return

    def take_over(self, ring: Callable[[], object]) -> bool:
        """Lets the calling thread read in the loop's place; returns False where another one does, or it is closed.

        ring: wakes that thread when the connection is closed by another one. It holds the loop's `turn`, here and in
        `read_here` and `give_back`.
        """
        if not self._open or self._reader not in (None, ring):
            return False
        self._reader = ring
        if self._outbox.idle and self._lanes.idle:
            self._loop.pause(self.number)
        else:
            self._watch()
        if self._pending is not None and self._pending():  # what TLS has decrypted, no `poll` will tell
            self.read_here()
        return True

    def give_back(self, ring: Callable[[], object]) -> None:
        """Lets the loop read again, if this thread has taken the connection over."""
        if self._reader == ring:
            self._reader = None
            self._watch()

    def read_here(self) -> bool:
        """Reads what there is, and does what follows from it; returns False once the connection is closed.

        An exception of the handler ends the loop, as it would on the loop's thread.
        """
        if not self._open:
            return False
        try:
            self._ready(selectors.EVENT_READ)
            while self._pending is not None and self._open and self._pending():
                self._ready(selectors.EVENT_READ)
        except Exception as error:
            self._loop.call_soon(partial(_raise, error))
        except BaseException:  # of a signal: who knows what has been read
            self.close("its reader was interrupted")
            raise
        return self._open

    @property
    def _full(self) -> bool:
        """Returns True if the other side must take some of its answers before it is read again."""
        return 0 < self._bodies_max <= self._outbox.bodies

    # ---- the end -----------------------------------------------------------------------------------------
    def _watch(self) -> None:
        """Registers the socket for what is wanted now: reading unless too many answers wait, writing if some do."""
        if self._open:
            reading = 0 if self._full or self._reader is not None else selectors.EVENT_READ
            self._loop.watch(self._sock, reading | (selectors.EVENT_WRITE if len(self._outbox) else 0), self._ready)

    def close(self, why: str, cause: LossCause = LossCause.CLOSED) -> None:
        """Closes the socket and its lanes, within the loop's `turn`. `closed` is called once."""
        with self._lock:
            if not self._open:
                return
            self._open = False
            self._receiver.closed = True
            self._outbox.clear()
            self.idle.set()
        if self._reader is not None:
            self._reader()
        self._loop.unwatch(self._sock)
        if self._sharing:
            self._sharing.end()
        self._sock.close()
        self._lanes.close()
        self._closed(why, cause)

    def detach(self) -> socket.socket:
        """Gives the socket away for another use, on the loop's thread: nothing arrives, `closed` is not called."""
        self._open, self._receiver.closed = False, True
        self._loop.unwatch(self._sock)
        return self._sock
