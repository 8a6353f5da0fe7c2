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

from paceline.live.event_loop import Loop
from paceline.live.net.connection import Connection
from paceline.live.protocol.wakeable_event import WakeableEvent


class Bell:
    """Wakes one thread that waits for sockets. `ring` may be called from any thread, also from that one."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._bell, self.ear = socket.socketpair()
        self._bell.setblocking(False)
        self.ear.setblocking(False)

    def __del__(self) -> None:
        self._bell.close()  # with its thread, or with the transport, whichever ends first
        self.ear.close()

    def ring(self) -> None:
        """Wakes the thread; nothing happens on the thread itself, which is awake."""
        if threading.get_ident() != self._thread:
            with contextlib.suppress(OSError):  # full: it has been rung often enough
                self._bell.send(b"\0")

    def hear(self) -> None:
        """Takes all rings."""
        with contextlib.suppress(BlockingIOError):
            self.ear.recv(4096)


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
        if self._loop.here or not hasattr(select, "poll"):
            return event.wait(timeout_s)
        bell = self._bell()
        event.wakers.append(bell.ring)
        try:
            with self._loop.turn:
                mine = [one for one in connections if one.take_over(bell.ring)]
            return self._read(event, mine, bell, timeout_s)
        finally:
            event.wakers.remove(bell.ring)
            with self._loop.turn:
                for one in connections:
                    one.give_back(bell.ring)

    def _bell(self) -> Bell:
        """Returns the bell of this thread."""
        bell: Bell | None = getattr(self._bells, "bell", None)
        if bell is None:
            bell = self._bells.bell = Bell()
        return bell

    def _read(self, event: WakeableEvent, mine: Sequence[Connection], bell: Bell, timeout_s: float) -> bool:
        """Reads whichever of `mine` has something, until the event is set; returns whether it is."""
        deadline = time.monotonic() + timeout_s
        found = select.poll()
        found.register(bell.ear, select.POLLIN)
        by_number = {one.number: one for one in mine}
        for number in by_number:
            found.register(number, select.POLLIN)
        turn = self._loop.turn
        while not event.is_set:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            ready = found.poll(1e3 * left + 1)
            with turn:
                for number, _ in ready:
                    one = by_number.get(number)
                    if one is None:
                        bell.hear()
                    elif one.read_here():
                        continue
                    else:  # closed, and its number may be another socket's by now
                        found.unregister(number)
                        del by_number[number]
        return True
