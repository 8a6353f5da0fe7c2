"""One socket: frames in, frames out.

Sending tries the socket at once, on the caller's thread, and leaves to the loop what the kernel would not take.
Receiving goes straight into the final buffers; only the first bytes of a frame pass through a small scratch pad, so
that a short message costs one system call.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from paceline.core.errors import PeerLost, ProtocolError
from paceline.core.vector import Memory
from paceline.live import wire
from paceline.live.loop import Loop
from paceline.live.transport import Envelope, Kind

SCRATCH_BYTES = 4096
IOV_MAX = 64

Room = Callable[[Kind, int, type, Sequence[int]], list[Any]]


class _Outgoing:
    """A frame on its way out; holds the envelope, and so its vectors, until the last byte is gone."""

    __slots__ = ("buffers", "envelope")

    def __init__(self, envelope: Envelope, buffers: list[memoryview]) -> None:
        self.envelope = envelope
        self.buffers = buffers

    def advance(self, sent: int) -> bool:
        """Forget `sent` bytes; True when nothing is left."""
        while self.buffers and sent >= self.buffers[0].nbytes:
            sent -= self.buffers.pop(0).nbytes
        if self.buffers and sent:
            self.buffers[0] = self.buffers[0][sent:]
        return not self.buffers


class _Incoming:
    """A frame whose header has been read and whose body is coming in."""

    __slots__ = ("begun", "codec", "id", "kind", "scalars", "targets", "vectors")

    def __init__(self, prefix: wire.Prefix, codec: wire.Codec, scalars: Any, begun: float) -> None:
        self.kind, self.id, self.begun = prefix.kind, prefix.id, begun
        self.codec, self.scalars = codec, scalars
        self.vectors: list[Any] = []
        self.targets: deque[memoryview] = deque()

    def take(self, data: memoryview) -> int:
        """Copy the head of the body out of the scratch pad; returns how many bytes were used."""
        used = 0
        while self.targets and used < data.nbytes:
            target = self.targets[0]
            n = min(target.nbytes, data.nbytes - used)
            target[:n] = data[used : used + n]
            used += n
            self.received(n)
        return used

    def received(self, n: int) -> None:
        if n == self.targets[0].nbytes:
            self.targets.popleft()
        else:
            self.targets[0] = self.targets[0][n:]


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
    ) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock, self._loop, self._memory = sock, loop, memory
        self._arrived, self._room, self._closed = arrived, room, closed
        self.body_bytes_max = body_bytes_max
        self.bytes_sent = self.bytes_received = 0
        self._lock = threading.Lock()
        self._queue: deque[_Outgoing] = deque()
        self._scratch = memoryview(bytearray(wire.PREFIX.size + wire.HEADER_BYTES_MAX))
        self._filled, self._limit = 0, SCRATCH_BYTES
        self._incoming: _Incoming | None = None
        self._begun = 0.0
        self._open = True
        self.idle = threading.Event()  # set while nothing waits to be sent
        self.idle.set()
        loop.call_soon(lambda: self._watch(selectors.EVENT_READ))

    # ---- out ---------------------------------------------------------------------------------------------
    def send(self, envelope: Envelope) -> None:
        """Never waits for the receiver. Raises PeerLost when the connection is closed."""
        frame = _Outgoing(envelope, wire.encode(envelope, self._memory))
        with self._lock:
            if not self._open:
                raise PeerLost("the connection is closed")
            self._queue.append(frame)
            if len(self._queue) == 1 and self._flush():
                return
            self.idle.clear()
        self._loop.call_soon(lambda: self._watch(selectors.EVENT_READ | selectors.EVENT_WRITE))

    def _flush(self) -> bool:
        """Hand over what the kernel takes now; True when the queue is empty. Under the lock."""
        try:
            while self._queue:
                frame = self._queue[0]
                sent = self._sock.sendmsg(frame.buffers[:IOV_MAX])
                self.bytes_sent += sent
                if frame.advance(sent):
                    frame.envelope.sent_at = time.monotonic()
                    self._queue.popleft()
        except BlockingIOError:
            return False
        except OSError:
            self._queue.clear()  # the reading side hears the reason and tells
        return True

    # ---- in ----------------------------------------------------------------------------------------------
    def _ready(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            with self._lock:
                if self._flush():
                    self.idle.set()
                    self._watch(selectors.EVENT_READ)
        if events & selectors.EVENT_READ:
            try:
                self._read()
            except ProtocolError as error:
                self.close(str(error))
            except OSError as error:
                self.close(error.strerror or str(error))

    def _read(self) -> None:
        """Read until the kernel has no more, for at most a few megabytes, so that others get their turn."""
        for _ in range(16):
            body = self._incoming.targets[0] if self._incoming else None
            try:
                n = self._sock.recv_into(self._scratch[self._filled : self._limit] if body is None else body)
            except BlockingIOError:
                return
            if n == 0:
                self.close("the other side closed the connection")
                return
            self.bytes_received += n
            if body is None:
                self._begun = self._begun or time.monotonic()
                self._filled += n
                self._parse()
            else:
                assert self._incoming is not None
                self._incoming.received(n)
                if not self._incoming.targets:
                    self._complete()
            if not self._open:
                return

    def _parse(self) -> None:
        """Take whole headers off the scratch pad, and the beginnings of bodies."""
        at, self._limit = 0, SCRATCH_BYTES
        while self._incoming is None and self._filled - at >= wire.PREFIX.size:
            head = at + wire.PREFIX.size
            prefix = wire.decode_prefix(self._scratch[at:head], self.body_bytes_max)
            if self._filled - head < prefix.header_bytes:
                self._limit = max(SCRATCH_BYTES, wire.PREFIX.size + prefix.header_bytes)
                break
            at = head + prefix.header_bytes
            frame = self._begin(prefix, self._scratch[head:at])
            at += frame.take(self._scratch[at : self._filled])
            if not frame.targets:
                self._complete()
            if not self._open:
                return
        rest = self._filled - at
        self._scratch[:rest] = bytes(self._scratch[at : self._filled])
        self._filled = rest

    def _begin(self, prefix: wire.Prefix, header: memoryview) -> _Incoming:
        codec, lengths, scalars = wire.decode_header(header, prefix.body_bytes)
        self._incoming = frame = _Incoming(prefix, codec, scalars, self._begun or time.monotonic())
        if lengths:
            frame.vectors = self._room(prefix.kind, prefix.id, codec.cls, lengths)
            views = [self._memory.bytes_of(v) for v in frame.vectors]
            frame.targets.extend(view for view in views if view.nbytes)
        return frame

    def _complete(self) -> None:
        frame, self._incoming = self._incoming, None
        assert frame is not None
        seconds = time.monotonic() - frame.begun
        self._begun = 0.0
        message = wire.assemble(frame.codec, frame.scalars, frame.vectors)
        self._arrived(Envelope(frame.kind, message, frame.id, seconds_receiving=seconds))

    # ---- the end -----------------------------------------------------------------------------------------
    def _watch(self, events: int) -> None:
        if self._open:
            self._loop.watch(self._sock, events, self._ready)

    def close(self, why: str) -> None:
        """On the loop's thread. `closed` is told once."""
        with self._lock:
            if not self._open:
                return
            self._open = False
            self._queue.clear()
            self.idle.set()
        self._loop.watch(self._sock, 0, self._ready)
        self._sock.close()
        self._closed(why)
