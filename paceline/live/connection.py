"""One socket: frames in, frames out.

Sending tries the socket at once, on the caller's thread, and leaves to the loop what the kernel would not take.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable
from typing import Any

from paceline.core.errors import PeerLost, ProtocolError
from paceline.core.vector import Memory
from paceline.live import wire
from paceline.live.loop import Loop
from paceline.live.receiving import Receiver, Room
from paceline.live.segments import Segments
from paceline.live.sending import Outbox, Outgoing
from paceline.live.sharing import Sharing
from paceline.live.transport import Envelope, Kind
from paceline.live.unix import UnixStream

READS_MAX = 16  # one after the other, before other sockets get their turn


class Connection:
    """Frames over one connected stream socket. Callbacks run on the loop's thread."""

    def __init__(
        self,
        sock: socket.socket,
        loop: Loop,
        memory: Memory,
        *,
        arrived: Callable[[Envelope], None],
        room: Room,
        closed: Callable[[str], None],
        body_bytes_max: int = 0,
        segments: Segments | None = None,
    ) -> None:
        """`segments`: this process's, to lend from to a process of the same host, over a Unix stream."""
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock, self._loop, self._memory = sock, loop, memory
        self._closed = closed
        self._lock = threading.Lock()
        self._outbox = Outbox()
        self._sharing: Sharing | None = None
        if segments is not None and isinstance(sock, UnixStream):
            self._sharing = Sharing(segments, memory, sock, tell=self._tell, later=loop.call_later)
        self._receiver = Receiver(memory, room, arrived, body_bytes_max, self._sharing)
        self._open = True
        self.bytes_sent = 0
        self.idle = threading.Event()  # set while nothing waits to be sent
        self.idle.set()
        loop.call_soon(self._watch)

    @property
    def bytes_received(self) -> int:
        return self._receiver.total

    @property
    def bytes_shared(self) -> tuple[int, int]:
        """Of vectors that passed by reference, out and in."""
        return (self._sharing.bytes_lent, self._sharing.bytes_borrowed) if self._sharing else (0, 0)

    def admit(self, body_bytes_max: int) -> None:
        """From now on the other side may send bodies, of at most so many bytes, and share memory."""
        self._receiver.body_bytes_max = body_bytes_max
        if self._sharing:
            self._sharing.admitted = True

    # ---- out ---------------------------------------------------------------------------------------------
    def send(self, envelope: Envelope) -> None:
        """Never waits for the receiver, and copies nothing. Raises PeerLost when the connection is closed."""
        frame = Outgoing(envelope, wire.encode(envelope, self._memory, self._sharing))
        with self._lock:
            if not self._open:
                raise PeerLost("the connection is closed")
            waiting = bool(self._outbox)
            self._outbox.put(frame)
            if waiting or self._flush():
                return
            self.idle.clear()
        self._loop.call_soon(self._watch)

    def _tell(self, message: Any) -> None:
        self.send(Envelope(Kind.CONTROL, message))

    def _flush(self) -> bool:
        """Hand over what the kernel takes now; True when nothing is left. Under the lock."""
        try:
            self.bytes_sent += self._outbox.flush(self._sock)
        except OSError:
            self._outbox.clear()  # the reading side hears the reason and tells
        return not self._outbox

    # ---- in ----------------------------------------------------------------------------------------------
    def _ready(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            with self._lock:
                if self._flush():
                    self.idle.set()
                    self._watch()
        if events & selectors.EVENT_READ:
            try:
                self._read()
            except BlockingIOError:
                return
            except ProtocolError as error:
                self.close(str(error))
            except OSError as error:
                self.close(error.strerror or str(error))

    def _read(self) -> None:
        for _ in range(READS_MAX):
            missing = self._receiver.read(self._sock)
            if self._sharing:
                self._sharing.check()
            if missing is None:
                self.close("the other side closed the connection")
            if missing or not self._open:
                return

    # ---- the end -----------------------------------------------------------------------------------------
    def _watch(self) -> None:
        if self._open:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outbox else 0)
            self._loop.watch(self._sock, events, self._ready)

    def close(self, why: str) -> None:
        """On the loop's thread. `closed` is told once."""
        with self._lock:
            if not self._open:
                return
            self._open = False
            self._receiver.closed = True
            self._outbox.clear()
            self.idle.set()
        self._loop.watch(self._sock, 0, self._ready)
        if self._sharing:
            self._sharing.end()
        self._sock.close()
        self._closed(why)
