"""Stand-ins shared by the tests of the live driver: room for vectors, a party that only keeps what it is told."""

from __future__ import annotations

import queue
import socket
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from paceline.core.coordination.control_messages import Progress
from paceline.core.coordination.party import Party
from paceline.core.errors import ProtocolError
from paceline.live.protocol.transport import Envelope, Kind, LossCause

T = TypeVar("T")
PROGRESS = Progress(
    steps=1,
    samples=2,
    exchanges=3,
    seconds_computing=0.5,
    seconds_waiting=0.5,
    seconds_communicating=0.5,
    bytes_up=4,
    bytes_down=5,
)
PATIENCE_SECONDS = 60.0
"""Longer than anything here takes on a busy machine; a test that waits so long has failed."""


class NumpyMemory:
    """Memory of float32 arrays; `made` counts the elements it gave out."""

    def __init__(self) -> None:
        self.made = 0

    def empty(self, length: int) -> Any:
        self.made += length
        return np.empty(length, np.float32)

    def bytes_of(self, v: Any) -> memoryview:
        return memoryview(v.view(np.uint8))

    def mapped(self, memory: Any, *, writable: bool) -> None:
        """Has nothing to prepare."""

    def shareable(self, v: Any) -> Any:
        return v

    def address_of(self, v: Any) -> int:
        return address(v)

    def view(self, room: memoryview, begin: int, length: int, over: Callable[[int], object], loan: int) -> Any:
        v = np.frombuffer(room, np.float32, length, begin)
        weakref.finalize(v, over, loan)
        return v

    def join(self, parts: Sequence[Any]) -> Any:
        base = parts[0].base
        if base is None or any(part.base is not base for part in parts):
            return np.concatenate(parts)
        at = begin = (address(parts[0]) - address(base)) // base.itemsize
        for part in parts:
            if (address(part) - address(base)) // base.itemsize != at:
                return np.concatenate(parts)
            at += len(part)
        return base[begin:at]


def address(v: Any) -> int:
    return int(v.__array_interface__["data"][0])


def vector(*numbers: float) -> Any:
    return np.array(numbers, dtype=np.float32)


class Recorder:
    """A handler that keeps what it is told, for a test to take it from another thread."""

    def __init__(self, *, vectors: bool = True) -> None:
        self.delivered: queue.SimpleQueue[tuple[Party, Envelope]] = queue.SimpleQueue()
        self.losses: queue.SimpleQueue[tuple[Party, str]] = queue.SimpleQueue()
        self.failures: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        self.rooms: list[list[Any]] = []
        self.threads: set[threading.Thread] = set()
        self._vectors = vectors

    def deliver(self, src: Party, envelope: Envelope) -> None:
        self.threads.add(threading.current_thread())
        self.delivered.put((src, envelope))

    def room_for(
        self, src: Party, kind: Kind, id: int, cls: type, lengths: Sequence[int], shared: Sequence[Any] = ()
    ) -> list[Any]:
        if not self._vectors:
            raise ProtocolError(f"{src} sends vectors to somebody who has no use for them")
        there = shared or [None] * len(lengths)
        self.rooms.append([np.empty(n, np.float32) if v is None else v for n, v in zip(lengths, there, strict=True)])
        return self.rooms[-1]

    def lost(self, src: Party, why: str, cause: LossCause = LossCause.CLOSED) -> None:
        self.threads.add(threading.current_thread())
        self.losses.put((src, why))

    def failed(self, error: BaseException) -> None:
        self.failures.put(error)

    def next(self) -> tuple[Party, Any]:
        """Who sent the next message, and the message."""
        src, envelope = take(self.delivered)
        return src, envelope.message


def take(source: queue.SimpleQueue[T]) -> T:
    """The next item; raises queue.Empty when none comes."""
    return source.get(timeout=PATIENCE_SECONDS)


def happened(event: threading.Event) -> bool:
    return event.wait(PATIENCE_SECONDS)


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of one connection over the loopback address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    one.settimeout(PATIENCE_SECONDS)
    other.settimeout(PATIENCE_SECONDS)
    return one, other


def in_background(act: Callable[[], T]) -> Callable[[], T]:
    """Runs `act` on a thread; the result, or what it raised, comes from calling what this returns."""
    outcome: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()

    def incarnation() -> None:
        try:
            outcome.put((True, act()))
        except BaseException as error:
            outcome.put((False, error))

    threading.Thread(target=incarnation, name="in background", daemon=True).start()

    def result() -> T:
        well, value = take(outcome)
        if not well:
            raise value
        return value  # type: ignore[no-any-return]

    return result


others: set[threading.Thread] = set()  # threads that were there before the test


def net_threads() -> list[str]:
    """The threads that move bytes and do not end, of all transports that the test has opened and closed."""
    there = [thread for thread in set(threading.enumerate()) - others if thread.name.startswith("net of")]
    for thread in there:
        thread.join(PATIENCE_SECONDS)  # a busy machine lets one finish its turn later than `close` waits for it
    return [thread.name for thread in there if thread.is_alive()]
