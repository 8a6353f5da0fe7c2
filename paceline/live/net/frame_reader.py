"""This turns bytes of one socket into messages.

Vectors are received straight into their final buffers. Headers, short frames and the first bytes of a vector pass
through a scratch pad, so that a short message costs one system call, and many short ones no more.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from paceline.codec.encoded import Encoded
from paceline.core.errors import ProtocolError
from paceline.core.vector import Memory
from paceline.live.net.striping import Striping
from paceline.live.net.zero_copy import OWN_MESSAGES, ZeroCopy
from paceline.live.protocol import frames
from paceline.live.protocol.transport import Envelope, Kind

BODIES_MAX = 2  # striped ones that there is room for at a time
SCRATCH_BYTES_MIN = 4096  # what of a vector is copied twice, at most
SCRATCH_BYTES = frames.PREFIX.size + frames.HEADER_BYTES_MAX

Room = Callable[[Kind, int, type, Sequence[int], Sequence[Any]], list[Any]]


class _Incoming:
    """A frame whose header has been read and whose body is coming in."""

    __slots__ = ("begun", "head", "prefix", "seconds", "targets", "vectors")

    def __init__(self, prefix: frames.Prefix, head: frames.Header, begun: float) -> None:
        self.prefix, self.head, self.begun = prefix, head, begun
        self.vectors: list[Any] = []
        self.targets: deque[memoryview] = deque()
        self.seconds: float | None = None  # from the first byte to the last, once that is there

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


class FrameReader:
    """Takes what a socket has and tells `arrived` of every whole message.

    room: gives the vectors to receive into, but for those that are there by reference, which it is told, and those that
    are encoded. body_bytes_max: longest body of a frame; more raises ProtocolError. lanes: over which the bodies of
    striped frames come. sharing: what takes those references, if any.
    """

    def __init__(
        self,
        memory: Memory,
        room: Room,
        arrived: Callable[[Envelope], None],
        body_bytes_max: int,
        lanes: Striping | None = None,
        sharing: ZeroCopy | None = None,
    ) -> None:
        self._memory, self._room, self._arrived, self._lanes, self._sharing = memory, room, arrived, lanes, sharing
        self.body_bytes_max = body_bytes_max
        self.total = 0  # bytes received
        self.closed = False  # set by whoever wants no more messages, also while some are still on the scratch pad
        self._scratch = memoryview(bytearray(SCRATCH_BYTES_MIN))  # longer once that is asked for: strangers are many
        self._filled, self._limit = 0, SCRATCH_BYTES_MIN
        self._incoming: _Incoming | None = None
        self._begun = 0.0
        self._line: deque[_Incoming] = deque()  # begun, and kept back by the first, whose body is still on the lanes

    def read(self, sock: socket.socket) -> int | None:
        """Makes one system call, and does what follows from it.

        Returns the bytes it asked for and did not get: 0 when there may be more to read at once. With the last byte of
        a body it returns 1, since most often nothing follows. None at the end of the stream. Raises OSError
        (BlockingIOError when there is nothing) and ProtocolError.
        """
        frame = self._incoming
        target = self._scratch[self._filled : self._limit] if frame is None else frame.targets[0]
        n = sock.recv_into(target)
        if n == 0:
            return None
        self.total += n
        if frame is None:
            self._begun = self._begun or time.monotonic()
            self._filled += n
            self._parse()
        else:
            frame.received(n)
            if not frame.targets:
                self._complete(frame)
                return 1
        return target.nbytes - n

    def _parse(self) -> None:
        """Take whole headers off the scratch pad, and the beginnings of bodies."""
        scratch, filled, at = self._scratch, self._filled, 0
        full = filled == self._limit
        while self._incoming is None and filled - at >= frames.PREFIX.size and not self.closed:
            head = at + frames.PREFIX.size
            prefix = frames.decode_prefix(scratch, self.body_bytes_max, at)
            if filled - head < prefix.header_bytes:
                break
            at = head + prefix.header_bytes
            header = frames.decode_header(scratch[head:at], prefix.body_bytes)
            if not (header.lengths or header.over or prefix.striped or self._line):  # the usual small message
                seconds, self._begun = time.monotonic() - self._begun if self._begun else 0.0, 0.0
                self._tell(prefix, header, (), seconds)
                continue
            if not (prefix.body_bytes or prefix.striped or header.forms or self._line) and self._sharing is not None:
                self._by_reference(prefix, header)
                continue
            frame = self._begin(prefix, header)
            if prefix.striped:
                self._stripe(frame)
                continue
            if frame.targets:
                at += frame.take(scratch[at:filled])
            if not frame.targets:
                self._complete(frame)
        self._filled = filled - at
        if self._filled:
            scratch[: self._filled] = bytes(scratch[at:filled])
        # Short frames that filled the pad, or a header longer than it, ask for a larger one; but not before a vector,
        # as what comes through the pad is copied once more.
        more = self._incoming is None and (full or self._filled >= SCRATCH_BYTES_MIN)
        self._limit = SCRATCH_BYTES if more else SCRATCH_BYTES_MIN
        if more and scratch.nbytes < SCRATCH_BYTES:
            self._scratch = memoryview(bytearray(SCRATCH_BYTES))
            self._scratch[: self._filled] = scratch[: self._filled]

    def _by_reference(self, prefix: frames.Prefix, head: frames.Header) -> None:
        """Finishes a frame that has no body: all its vectors are there by reference. It does what `_begin`,
        `_make_room` and `_complete` do, in fewer calls, as nearly all messages of one host are such.
        """
        began, self._begun = self._begun or time.monotonic(), 0.0
        vectors: Sequence[Any] = self._shared(head.lengths, head.places, head.over)
        if head.lengths:
            vectors = self._room(prefix.kind, prefix.id, head.codec.cls, head.lengths, vectors)
        self._tell(prefix, head, vectors, time.monotonic() - began)

    def _begin(self, prefix: frames.Prefix, head: frames.Header) -> _Incoming:
        """Begins a frame whose header is there: makes room for its body, unless that comes over lanes.

        Raises ProtocolError where a control message has encoded vectors, or a striped frame refers to shared memory.
        """
        if head.forms and prefix.kind == Kind.CONTROL:
            raise ProtocolError(f"a frame of kind {prefix.kind.name} has encoded vectors")
        frame = _Incoming(prefix, head, self._begun or time.monotonic())
        references = head.places or head.over
        if not prefix.striped:
            self._incoming = frame
            self._make_room(frame, self._shared(head.lengths, head.places, head.over) if references else ())
        elif references:
            raise ProtocolError("a striped frame refers to shared memory")
        return frame

    def _make_room(self, frame: _Incoming, shared: Sequence[Any] = ()) -> None:
        """Asks for the vectors of a frame, and notes where the bytes of its body go.

        Vectors that are there by reference need no room. Encoded ones get room for their bytes, not for their numbers.
        """
        prefix, head = frame.prefix, frame.head
        lengths, places, forms = head.lengths, head.places, head.forms
        if lengths:
            there = _with_encoded(shared, lengths, forms) if forms else shared
            frame.vectors = self._room(prefix.kind, prefix.id, head.codec.cls, lengths, there)
            if len(lengths) == 1 and not (forms or places):  # the usual vector, in fewer calls
                if (view := self._memory.bytes_of(frame.vectors[0])).nbytes:
                    frame.targets.append(view)
                return
            for at, form in enumerate(forms):
                if form is not None:
                    frame.vectors[at] = self._encoded(form, lengths[at])
            sent = [v for v, place in zip(frame.vectors, places, strict=True) if not place] if places else frame.vectors
            views = [v.data if type(v) is Encoded else self._memory.bytes_of(v) for v in sent]
            frame.targets.extend(view for view in views if view.nbytes)

    def _stripe(self, frame: _Incoming) -> None:
        """Puts a frame whose body comes over the lanes into the line."""
        if not frame.prefix.body_bytes or self._lanes is None:
            raise ProtocolError("a striped frame has no body, or no lanes")
        self._begun = 0.0
        self._line.append(frame)
        self._open_next()

    def _open_next(self) -> None:
        """Makes room for the next striped bodies, BODIES_MAX at a time.

        What has come of later ones stays with the kernel, which so bounds the memory that a fast sender takes here.
        """
        striped = [frame for frame in self._line if frame.prefix.striped]
        for frame in striped[:BODIES_MAX]:
            assert self._lanes is not None
            if not frame.vectors:
                self._make_room(frame)
                self._lanes.expect(frame.targets, partial(self._whole, frame))

    def _whole(self, frame: _Incoming) -> None:
        """Notes that all of a striped body is there; tells of it and of the frames that it held up."""
        frame.seconds = time.monotonic() - frame.begun
        while self._line and self._line[0].seconds is not None and not self.closed:
            self._tell_of(self._line.popleft())
        if not self.closed:
            self._open_next()

    def _shared(
        self, lengths: Sequence[int], places: Sequence[frames.SharedRef | None], over: Sequence[int]
    ) -> list[Any]:
        """Returns the vectors that are there by reference, None for each that follows in the body.

        It also ends the loans that came back with this frame. Raises ProtocolError where no memory is shared.
        """
        if self._sharing is None:
            raise ProtocolError("the other side refers to memory that it cannot share over this connection")
        self._sharing.given_back(over)
        vectors: list[Any] = []
        for at, place in enumerate(places):
            vectors.append(self._sharing.take(place, lengths[at]) if place else None)
        return vectors

    def _encoded(self, form: frames.Form, length: int) -> Encoded:
        """Returns room in recycled memory, as for any vector."""
        words = self._memory.empty(-(-form.nbytes // frames.ITEM_BYTES))
        data = self._memory.bytes_of(words)[: form.nbytes]
        return Encoded(form.codec, length, data, form.row, form.base, form.exact)

    def _complete(self, frame: _Incoming) -> None:
        """Finishes a frame. Behind a striped body it waits, as messages are delivered in order.

        Messages of the control plane do not wait: they may overtake all others.
        """
        self._incoming = None
        self._begun = 0.0
        frame.seconds = time.monotonic() - frame.begun
        if self._line and frame.prefix.kind != Kind.CONTROL:
            self._line.append(frame)
        else:
            self._tell_of(frame)

    def _tell_of(self, frame: _Incoming) -> None:
        assert frame.seconds is not None
        self._tell(frame.prefix, frame.head, frame.vectors, frame.seconds)

    def _tell(self, prefix: frames.Prefix, head: frames.Header, vectors: Sequence[Any], seconds: float) -> None:
        """Delivers a message, unless it is one for this end of the connection, such as a returned loan."""
        message = frames.assemble(head.codec, head.scalars, vectors)
        if self._sharing is None or head.codec.cls not in OWN_MESSAGES or not self._sharing.heard(message):
            envelope = Envelope(prefix.kind, message, prefix.id, prefix.slice, head.server_view)
            envelope.seconds_receiving = seconds
            self._arrived(envelope)


def _with_encoded(shared: Sequence[Any], lengths: Sequence[int], forms: Sequence[frames.Form | None]) -> list[Any]:
    """Returns what needs no room: vectors that are shared, and encoded ones, whose bytes nobody has seen yet."""
    before = shared or [None] * len(lengths)
    return [
        v if form is None else Encoded(form.codec, n, b"") for v, n, form in zip(before, lengths, forms, strict=True)
    ]
