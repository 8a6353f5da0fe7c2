"""The queue of frames that wait to leave over one socket: control first, all else in order.

    front                                                            back
    | frame that has begun | control, control, ... | all other frames, in order |
    |<------------- `_ahead` frames -------------->|

A control message is inserted behind the last control message, never before a frame of which some bytes have left. So it
waits for one frame at most, though gradients of many MiB are queued. Several frames go into one system call.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence

from paceline.live.protocol.transport import Envelope, Kind

IOV_MAX = 64
"""Buffers of one system call; Linux takes 1024, others as few as 16."""
BATCH_BYTES = 1 << 20  # what one system call is offered, but for a frame that is larger


class Outgoing:
    """Holds a frame on its way out, with the envelope and so its vectors, until the last byte has left."""

    __slots__ = ("body", "buffers", "envelope", "left", "vectors")

    def __init__(self, envelope: Envelope, buffers: list[memoryview], body: Sequence[memoryview] = ()) -> None:
        """`buffers`: the bytes of the frame, one after the other; `body`: those that go over the lanes."""
        self.envelope = envelope
        self.buffers = buffers
        self.body = body
        self.vectors = len(buffers) > 1 or len(body) > 0
        self.left = sum([buffer.nbytes for buffer in buffers])

    def advance(self, sent: int) -> None:
        """Forget the first `sent` bytes."""
        self.left -= sent
        while self.buffers and sent >= self.buffers[0].nbytes:
            sent -= self.buffers.pop(0).nbytes
        if sent:
            self.buffers[0] = self.buffers[0][sent:]


class SendQueue:
    """Keeps the frames for one socket in order. Its owner lets one thread in at a time.

    A control message passes everything but its like and the frame that has begun to leave, so it never waits for
    more than that one frame and what the kernel has taken already.

    A frame whose body goes over lanes is given to `stripe` when its header has left. What comes after it waits for
    `go_on`, so that a receiver makes room for one such body at a time; control does not wait.
    """

    def __init__(self, stripe: Callable[[Outgoing], None]) -> None:
        self._line: deque[Outgoing] = deque()
        self._ahead = 0  # frames at the front that the next control message may not pass
        self._stripe = stripe
        self._striping = False
        self.bodies = 0  # frames with vectors of which some are still here

    def __len__(self) -> int:
        """Returns the number of frames that the socket could take now."""
        return self._ahead if self._striping else len(self._line)

    @property
    def idle(self) -> bool:
        """Returns True if nothing waits, neither for the socket nor for the lanes."""
        return not self._line and not self._striping

    def go_on(self) -> None:
        """Lets frames leave again, after the lanes have taken a body."""
        self.bodies -= self._striping
        self._striping = False

    def put(self, frame: Outgoing) -> None:
        """Appends a frame; one of the control plane goes behind the last one of its kind."""
        self.bodies += frame.vectors
        if frame.envelope.kind == Kind.CONTROL:
            self._line.insert(self._ahead, frame)
            self._ahead += 1
        else:
            self._line.append(frame)

    def put_begun(self, frame: Outgoing, sent: int) -> None:
        """Puts a frame into the empty queue of which the kernel has taken `sent` bytes, not all, already."""
        self.put(frame)
        self._left(sent)

    def clear(self) -> None:
        self._line.clear()
        self._ahead, self._striping, self.bodies = 0, False, 0

    def flush(self, sock: socket.socket) -> int:
        """Gives the kernel what it takes now; returns how many bytes that was. Raises OSError."""
        total = 0
        try:
            while ready := len(self):
                sent = sock.sendmsg(self._batch(ready))
                total += sent
                self._left(sent)
        except BlockingIOError:
            pass
        return total

    def _batch(self, ready: int) -> list[memoryview]:
        """Returns the buffers of the first `ready` frames."""
        if ready == 1:
            return self._line[0].buffers[:IOV_MAX]
        buffers: list[memoryview] = []
        size = 0
        for frame in itertools.islice(self._line, ready):
            buffers += frame.buffers
            size += frame.left
            if size >= BATCH_BYTES or len(buffers) >= IOV_MAX or frame.body:
                break
        return buffers[:IOV_MAX]

    def _left(self, sent: int) -> None:
        """Removes `sent` bytes from the front; a frame with its body on lanes starts to be striped."""
        line = self._line
        while line and sent >= line[0].left:
            frame = line.popleft()
            sent -= frame.left
            self._ahead = max(0, self._ahead - 1)
            if frame.body:
                self._striping = True
                self._stripe(frame)
            else:
                self.bodies -= frame.vectors
                frame.envelope.sent_at = time.monotonic()
        if sent:
            line[0].advance(sent)
            self._ahead = max(1, self._ahead)
