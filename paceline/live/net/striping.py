"""Further streams of one connection, where a single one does not fill the link.

The bodies of large frames leave over them in pieces, each over whichever lane can take one; headers, small frames and
control stay on the connection itself. So a slow lane gets fewer pieces, and nothing small waits behind them.

    piece    20 bytes, big-endian: number of the frame in 64 bits (striped ones count from 0), offset in its body,
             length; then the bytes, from and into the final buffers

The called side sends a piece of length 0 first, which says that the lane may be used. Everything but `send` and the
properties runs on the loop's thread.

    a lane, in      input                                 then                                       next
    HEAD            20 bytes, of a known frame            room within that frame's body              BODY
    HEAD            20 bytes, of a frame not known yet    reading stops until its header arrives     WAITS
    HEAD            20 bytes, length 0                    the lane may be used                       HEAD
    HEAD            20 bytes, of a complete frame         ProtocolError
    WAITS           `expect`: the header is there         room within that frame's body              BODY
    BODY            all bytes of the piece                the frame is complete with its last one    HEAD

The header of a frame travels on the connection and may be overtaken by its pieces; hence WAITS.
"""

from __future__ import annotations

import contextlib
import math
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from paceline.core.errors import ProtocolError
from paceline.live.event_loop import Loop
from paceline.live.net.send_queue import Outgoing
from paceline.live.protocol.transport import Envelope, Kind, LossCause

HEAD = struct.Struct("!QQI")
PIECE_BYTES = 256 * 1024
LANES_MAX = 16
LANES_AUTO_MAX = 8
RTT_AT = 68  # in struct tcp_info: microseconds, 32 bits
_NO_ROOM = memoryview(b"")
_NOTHING = Envelope(Kind.CONTROL, None)
READS_MAX = 16  # one after the other, before other sockets get their turn


@dataclass(slots=True, eq=False)
class _Lane:
    """A lane is one stream: it has the piece on its way out, and the one on its way in."""

    sock: socket.socket
    ready: bool
    out: Outgoing | None = None
    frame: Outgoing | None = None  # that `out` is a piece of
    head: memoryview = field(default_factory=lambda: memoryview(bytearray(HEAD.size)))
    filled: int = 0  # bytes of `head`
    body: _Body | None = None  # that the piece coming in belongs to; None while its frame is not known yet
    room: memoryview = _NO_ROOM
    bytes_sent: int = 0
    bytes_received: int = 0


class _Body:
    """Holds where the body of a striped frame goes, and calls `done` when all of it is there."""

    def __init__(self, targets: Sequence[memoryview], done: Callable[[], None]) -> None:
        self.done = done
        self.missing = self._unclaimed = sum([target.nbytes for target in targets])
        self._targets = targets

    def room(self, at: int, length: int) -> memoryview:
        """Returns room for these bytes. Raises ProtocolError unless they lie within one vector and are claimed once."""
        self._unclaimed -= length
        for target in self._targets:
            if at < target.nbytes:
                if length <= target.nbytes - at and self._unclaimed >= 0:
                    return target[at : at + length]
                break
            at -= target.nbytes
        raise ProtocolError("a piece is not part of its frame")


class Striping:
    """Sends and receives bodies over the lanes of one connection."""

    def __init__(
        self,
        loop: Loop,
        *,
        taken: Callable[[], None],
        left: Callable[[], None],
        closed: Callable[[str, LossCause], None],
    ) -> None:
        """`taken` is called once a frame, when all its pieces have a lane; `left` when nothing is on its way out."""
        self._loop, self._taken, self._all_left, self._closed = loop, taken, left, closed
        self._lanes: list[_Lane] = []
        self._next: Outgoing | None = None  # its body has not been cut yet
        self._pieces: deque[tuple[Outgoing, Outgoing]] = deque()  # whose, and itself
        self._leaving = 0  # pieces on their way out
        self._sent = self._expected = 0  # striped frames so far, each way
        self._bodies: dict[int, _Body] = {}

    def __len__(self) -> int:
        return len(self._lanes)

    @property
    def ready(self) -> bool:
        """Returns True if bodies may be sent over a lane."""
        return any(lane.ready for lane in self._lanes)

    @property
    def idle(self) -> bool:
        """Returns True if no body waits or is on its way out."""
        return self._next is None and not self._pieces and not self._leaving

    @property
    def traffic(self) -> list[tuple[int, int]]:
        """Returns the bytes sent and received by each."""
        return [(lane.bytes_sent, lane.bytes_received) for lane in self._lanes]

    def add(self, sock: socket.socket, *, called: bool) -> None:
        """Adds a lane; `called`: by the other side, which is told that it may be used."""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lane = _Lane(sock, called)
        self._lanes.append(lane)
        if called:
            lane.out = Outgoing(_NOTHING, [memoryview(HEAD.pack(0, 0, 0))])
            self._send(lane)
        self._watch(lane)

    def close(self) -> None:
        """Drops what waits and closes all lanes."""
        self._pieces.clear()
        self._next, self._leaving = None, 0
        for lane in self._lanes:
            self._loop.unwatch(lane.sock)
            lane.sock.close()

    # ---- out ---------------------------------------------------------------------------------------------
    def send(self, frame: Outgoing) -> None:
        """Sends the body of a frame whose header has left, from any thread, once the body before has found lanes."""
        self._next = frame
        self._loop.call_soon(self._cut)

    def _cut(self) -> None:
        """Cuts the next body into pieces, and gives the first ones to lanes that are free.

        Each piece has a head: of which frame it is, where in the body it lies, and how long it is. So pieces may arrive
        in any order.
        """
        frame, at = self._next, 0
        if frame is None:
            return  # closed meanwhile
        for view in frame.body:
            for begin in range(0, view.nbytes, PIECE_BYTES):
                piece = view[begin : begin + PIECE_BYTES]
                head = memoryview(HEAD.pack(self._sent, at, piece.nbytes))
                self._pieces.append((frame, Outgoing(frame.envelope, [head, piece])))
                at += piece.nbytes
        frame.left = len(self._pieces)  # of pieces, from now on
        self._sent += 1
        self._next = None
        for lane in self._lanes:
            if lane.ready and not lane.out:
                self._send(lane)
                self._watch(lane)

    def _send(self, lane: _Lane) -> None:
        """Sends piece after piece, as long as the kernel takes them."""
        with contextlib.suppress(OSError):  # no room now; or the reading side hears the reason and tells
            while lane.out or self._take(lane):
                assert lane.out is not None
                sent = lane.sock.sendmsg(lane.out.buffers)
                lane.bytes_sent += sent
                lane.out.advance(sent)
                if not lane.out.left:
                    self._gone(lane)

    def _take(self, lane: _Lane) -> bool:
        if not self._pieces:
            return False
        lane.frame, lane.out = self._pieces.popleft()
        self._leaving += 1
        if not self._pieces:
            self._taken()
        return True

    def _gone(self, lane: _Lane) -> None:
        frame, lane.frame, lane.out = lane.frame, None, None
        if frame is None:
            return
        frame.left -= 1
        if not frame.left:
            frame.envelope.sent_at = time.monotonic()
        self._leaving -= 1
        if self.idle:  # not `taken`: another thread may have given the next frame by now, whose turn that would end
            self._all_left()

    # ---- in ----------------------------------------------------------------------------------------------
    def expect(self, targets: Sequence[memoryview], done: Callable[[], None]) -> None:
        """Expects the body of a frame whose header has arrived. Raises ProtocolError if a piece does not fit."""
        self._bodies[self._expected] = _Body(targets, done)
        self._expected += 1
        for lane in self._lanes:
            if lane.filled == HEAD.size:
                self._place(lane)
                self._watch(lane)

    def _read(self, lane: _Lane) -> None:
        for _ in range(READS_MAX):
            target = lane.room or lane.head[lane.filled :]
            n = lane.sock.recv_into(target)
            if not n:
                self._closed("the other side closed one of the streams", LossCause.CLOSED)
                return
            lane.bytes_received += n
            if lane.room:
                self._received(lane, n)
            else:
                lane.filled += n
                if lane.filled == HEAD.size:
                    self._place(lane)
            if n < target.nbytes or lane.filled == HEAD.size:
                return

    def _place(self, lane: _Lane) -> None:
        """Finds room for the bytes of a piece whose head is there, or waits for the header of its frame."""
        number, at, length = HEAD.unpack(lane.head)
        body = self._bodies.get(number)
        if not length:
            lane.ready = True
        elif body is not None:
            lane.body, lane.room = body, body.room(at, length)
        elif number < self._expected:
            raise ProtocolError("a piece came for a frame that is complete")
        else:
            return
        lane.filled = 0

    def _received(self, lane: _Lane, n: int) -> None:
        body = lane.body
        assert body is not None
        body.missing -= n
        lane.room = lane.room[n:]
        if not lane.room:
            lane.body, lane.room = None, _NO_ROOM  # an empty view, too, would keep the vector
        if not body.missing:
            self._bodies = {number: other for number, other in self._bodies.items() if other is not body}
            body.done()

    def _watch(self, lane: _Lane) -> None:
        reading = 0 if lane.filled == HEAD.size else selectors.EVENT_READ
        self._loop.watch(lane.sock, reading | (selectors.EVENT_WRITE if lane.out else 0), partial(self._ready, lane))

    def _ready(self, lane: _Lane, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._send(lane)
        if events & selectors.EVENT_READ:
            try:
                self._read(lane)
            except BlockingIOError:
                pass
            except ProtocolError as error:
                self._closed(str(error), LossCause.BROKE_PROTOCOL)
            except OSError as error:
                self._closed(error.strerror or str(error), LossCause.CLOSED)
        self._watch(lane)


def enough_for(sock: socket.socket, link_bytes_per_second: float = 1.25e9) -> int:
    """Returns how many streams fill a link of that speed (10 Gbit/s), from the round trip to the other end of `sock`.

    A stream has at most what the kernel's buffer holds on its way during one round trip. 1 where the system does not
    say what either is.
    """
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, RTT_AT + 4)
        round_trip_s = float(struct.unpack_from("=I", info, RTT_AT)[0]) * 1e-6
        window_bytes = int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2]) // 2  # the rest is bookkeeping
    except (OSError, AttributeError, ValueError, struct.error):
        return 1
    return max(1, min(LANES_AUTO_MAX, math.ceil(round_trip_s * link_bytes_per_second / window_bytes)))
