"""A thread that waits for an answer reads it itself, so that no other thread has to be woken and to wake it.

    the connections it waits for    who reads them      when the thread
    are the loop's                  the loop's thread   does not wait, or another thread has taken them over
    are taken over                  this thread         waits for an answer that comes over them
    are given back                  the loop's thread   has its answer, or gives up

Everything else stays on the loop's thread: other connections, timers, and what the kernel did not take at once. Both
threads hold the loop's `turn` while a callback runs, so a handler still sees one call at a time. A connection that is
taken over is not in the loop's selector. Whoever sets the event, or closes such a connection, on another thread rings a
bell that this thread listens to beside its connections.

An exception of a handler ends the loop, as it does on the loop's own thread. One that a signal raises here in the
middle of a frame, such as Ctrl-C, closes the connection, of whose bytes nobody knows any more which were read.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Sequence
from functools import partial

from paceline.live.adaptive_spin import AdaptiveSpin
from paceline.live.event_loop import Loop
from paceline.live.net.connection import Connection
from paceline.live.protocol.wakeable_event import WakeableEvent

CAN_POLL = hasattr(select, "poll")


class Bell:
    """Wakes one thread that waits for sockets. `ring` may be called from any thread, also from that one."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self._numbers: list[int] | None = None
        self._poll = select.poll()
        self._spin = AdaptiveSpin()

    def __del__(self) -> None:
        self._bell.close()  # with its thread, or with the transport, whichever ends first
        self._ear.close()

    def ring(self) -> None:
        """Wakes the thread; nothing happens on the thread itself, which is awake."""
        if threading.get_ident() != self._thread:
            with contextlib.suppress(OSError):  # full: it has been rung often enough
                self._bell.send(b"\0")

    def hear(self) -> None:
        """Takes all rings."""
        with contextlib.suppress(BlockingIOError):
            self._ear.recv(4096)

    def poll(self, numbers: list[int], seconds: float) -> list[tuple[int, int]]:
        """Waits until one of these descriptors can be read, or it rings; returns which, the bell's own among them.

        It polls for a short time first, where that pays (`adaptive_spin.py`).
        """
        if numbers != self._numbers:  # most often they are the same as the last time
            self._poll = select.poll()
            for number in (self._ear.fileno(), *numbers):
                self._poll.register(number, select.POLLIN)
            self._numbers = numbers
        found = self._spin.look(partial(self._poll.poll, 0), seconds)
        return list(found) or self._poll.poll(1e3 * seconds + 1)


class CallerReads:
    """Lets threads of one party wait for answers by reading their connections. One object serves all threads."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._bells = threading.local()

    def wait(self, event: WakeableEvent, connections: Sequence[Connection], timeout_s: float) -> bool:
        """Reads these connections until the event is set, for `timeout_s` at most; returns whether it is.

        Connections that another thread reads already are left to it; so are all on a system without `poll`.
        """
        if event.is_set:
            return True
        if not CAN_POLL or self._loop.here:
            return event.wait(timeout_s)
        bell = self._bell()
        event.wakers.append(bell.ring)
        try:
            mine: dict[int, Connection] = {}
            with self._loop.turn:
                for one in connections:
                    if one.take_over(bell.ring):
                        mine[one.number] = one
            return self._read(event, mine, bell, timeout_s)
        finally:
            event.wakers.remove(bell.ring)
            with self._loop.turn:
                for one in connections:
                    one.give_back(bell.ring)

    def _bell(self) -> Bell:
        """Returns the bell of this thread."""
        try:
            bell: Bell = self._bells.bell
        except AttributeError:
            bell = self._bells.bell = Bell()
        return bell

    def _read(self, event: WakeableEvent, mine: dict[int, Connection], bell: Bell, timeout_s: float) -> bool:
        """Reads whichever of `mine`, by descriptor, has something, until the event is set; returns whether it is."""
        began, left, turn = time.monotonic(), timeout_s, self._loop.turn
        while left > 0 and not event.is_set:
            ready = bell.poll(list(mine), left)
            with turn:
                for number, _ in ready:
                    one = mine.get(number)
                    if one is None:
                        bell.hear()
                    elif not one.read_here():
                        del mine[number]  # closed, and its number may be another socket's by now
            left = timeout_s - (time.monotonic() - began)
        return event.is_set
