"""What waits to leave over one socket: control first, all else in order, several frames a system call."""

from __future__ import annotations

import socket
import time
from collections import deque

from paceline.live.transport import Envelope, Kind

IOV_MAX = 64
BATCH_BYTES = 1 << 20  # what one system call is offered, but for a frame that is larger


class Outgoing:
    """A frame on its way out; holds the envelope, and so its vectors, until the last byte is gone."""

    __slots__ = ("buffers", "envelope", "left")

    def __init__(self, envelope: Envelope, buffers: list[memoryview]) -> None:
        """The bytes of `envelope` are `buffers`, one after the other."""
        self.envelope = envelope
        self.buffers = buffers
        self.left = sum([buffer.nbytes for buffer in buffers])

    def advance(self, sent: int) -> None:
        """Forget the first `sent` bytes."""
        self.left -= sent
        while sent >= self.buffers[0].nbytes:
            sent -= self.buffers.pop(0).nbytes
        if sent:
            self.buffers[0] = self.buffers[0][sent:]


class Outbox:
    """Frames in the order in which they will leave. Not for two threads at a time.

    A control message passes everything but its like and the frame that has begun to leave, so it never waits for
    more than that one frame and what the kernel has taken already.
    """

    def __init__(self) -> None:
        self._line: deque[Outgoing] = deque()
        self._ahead = 0  # frames at the front that the next control message may not pass

    def __len__(self) -> int:
        return len(self._line)

    def put(self, frame: Outgoing) -> None:
        if frame.envelope.kind == Kind.CONTROL:
            self._line.insert(self._ahead, frame)
            self._ahead += 1
        else:
            self._line.append(frame)

    def clear(self) -> None:
        self._line.clear()
        self._ahead = 0

    def flush(self, sock: socket.socket) -> int:
        """Hand over what the kernel takes now; returns how many bytes that was. Raises OSError."""
        total = 0
        try:
            while self._line:
                sent = sock.sendmsg(self._batch())
                total += sent
                self._left(sent)
        except BlockingIOError:
            pass
        return total

    def _batch(self) -> list[memoryview]:
        if len(self._line) == 1:
            return self._line[0].buffers[:IOV_MAX]
        buffers: list[memoryview] = []
        size = 0
        for frame in self._line:
            buffers += frame.buffers
            size += frame.left
            if size >= BATCH_BYTES or len(buffers) >= IOV_MAX:
                break
        return buffers[:IOV_MAX]

    def _left(self, sent: int) -> None:
        """`sent` bytes are gone from the front."""
        line = self._line
        while line and sent >= line[0].left:
            frame = line.popleft()
            sent -= frame.left
            frame.envelope.sent_at = time.monotonic()
            self._ahead = max(0, self._ahead - 1)
        if sent:
            line[0].advance(sent)
            self._ahead = max(1, self._ahead)
