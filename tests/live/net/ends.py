"""Both ends of one connection, and what they heard."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

from paceline.core.coordination.control_messages import Total
from paceline.core.errors import ProtocolError
from paceline.core.paramserver.gated_server import Push
from paceline.live.event_loop import Loop
from paceline.live.net.connection import Connection
from paceline.live.protocol.pending_reply import rooms_for
from paceline.live.protocol.transport import Envelope, Kind, LossCause
from tests.live.fakes import PATIENCE_SECONDS, NumpyMemory, happened, vector

BODY_BYTES_MAX = 1 << 28


class End:
    """One end: a connection on a loop of its own, and what it was told."""

    def __init__(self, sock: socket.socket) -> None:
        self.failures: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        self.came: queue.SimpleQueue[Envelope] = queue.SimpleQueue()
        self.closings: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.closed_by: list[str] = []  # names of threads
        self.causes: queue.SimpleQueue[LossCause] = queue.SimpleQueue()
        self.rooms: list[list[Any]] = []
        self.on_arrival: Callable[[], None] = lambda: None
        self.memory = NumpyMemory()
        self.loop = Loop("net of an end", self.failures.put)
        self.connection = Connection(
            sock,
            self.loop,
            self.memory,
            arrived=self.arrived,
            room=self.room,
            closed=self.closed,
            body_bytes_max=BODY_BYTES_MAX,
        )
        self.connection.begin()
        self.loop.start()

    def closed(self, why: str, cause: LossCause) -> None:
        self.closed_by.append(threading.current_thread().name)
        self.closings.put(why)
        self.causes.put(cause)

    def arrived(self, envelope: Envelope) -> None:
        if envelope.message == Total(samples=-1):
            raise ProtocolError("not expected here")
        self.on_arrival()
        self.came.put(envelope)

    def room(self, kind: Kind, id: int, cls: type, lengths: Sequence[int], shared: Sequence[Any] = ()) -> list[Any]:
        self.rooms.append(rooms_for(lengths, shared, self.memory))
        return self.rooms[-1]

    def on_loop(self, act: Callable[[], Any]) -> None:
        done = threading.Event()
        self.loop.call_soon(lambda: (act(), done.set()))  # type: ignore[arg-type]
        assert happened(done)

    def close(self) -> None:
        self.loop.call_soon(lambda: self.connection.close("end of the test"))
        self.loop.end(PATIENCE_SECONDS)
        self.connection.close("end of the test")


def push(clock: int, g: Any = None) -> Envelope:
    return Envelope(Kind.CALL, Push(g=vector(1, 2, 3) if g is None else g, clock=clock, samples=2), clock)


def total(samples: int) -> Envelope:
    return Envelope(Kind.CONTROL, Total(samples=samples))
