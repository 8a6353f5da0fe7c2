"""The event loop of a party's network thread: one set of descriptors, one wake-up pipe, a heap of timers.

    call_soon(action)         runs it on the loop's thread, in order; from any thread, which rings the bell
    call_later(seconds, ..)   runs it when the time is up
    watch(sock, events, ..)   calls back when the socket is readable or writable; on the loop's thread only

One ring is enough for all that is asked before it is heard, so a burst of calls costs one system call. A TLS stream may
hold decrypted bytes that the selector cannot see; the loop asks such streams (`pending`) after each callback.

It sleeps until something is there. A server's loop polls for a short time first, where that pays (`adaptive_spin.py`).

Callbacks run under a lock, `turn`, which is free while the loop waits. Another thread that holds it stands in for the
loop's own: it may call back and `watch` (`paceline.live.net.caller_reads`).
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from paceline.live.adaptive_spin import AdaptiveSpin
from paceline.live.readiness import READ, readiness

Action = Callable[[], None]


class Loop:
    """Runs callbacks for readable and writable sockets and for timers, all on one thread."""

    def __init__(self, name: str, failed: Callable[[BaseException], None], *, spins: bool = False) -> None:
        """`failed` is called with an exception that escaped a callback; the loop ends with it.

        spins: the next message often comes so soon that sleeping costs more than polling for it.
        """
        self.turn = threading.Lock()
        self._selector = readiness()
        self._spin = AdaptiveSpin() if spins else None
        self._watched: dict[int, tuple[int, Callable[[int], None]]] = {}  # by descriptor: events, and what to call
        self._soon: deque[Action] = deque()
        self._timers: list[tuple[float, int, Action]] = []
        self._sequence = itertools.count()
        self._failed = failed
        self._unseen: set[int] = set()  # sockets that are read again at the next turn
        self._ending = self._ended = False
        self._rung = False  # a ring is on its way: it is enough for all that is asked meanwhile
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self._add(self._ear.fileno(), READ, self._hear)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    @property
    def here(self) -> bool:
        """Returns True on the loop's own thread."""
        return threading.get_ident() == self._thread.ident

    def call_soon(self, action: Action) -> None:
        """Runs `action` on the loop's thread soon; may be called from any thread."""
        self._soon.append(action)
        if not self.here:
            self._ring()

    def call_later(self, seconds: float, action: Action) -> None:
        """Runs `action` on the loop's thread after so many seconds; may be called from any thread."""
        when = time.monotonic() + seconds
        self.call_soon(lambda: heapq.heappush(self._timers, (when, next(self._sequence), action)))

    def watch(self, sock: socket.socket, events: int, callback: Callable[[int], None]) -> None:
        """Watches a socket, within `turn` only. `events` may be 0 for a while; `unwatch` is for good."""
        number = sock.fileno()
        if self._ended or number < 0:
            return
        pending: Callable[[], int] | None = getattr(sock, "pending", None)
        if not events:
            self.pause(number)
        elif pending is None:
            self._add(number, events, callback)
        else:
            self._add(number, events, partial(self._call, sock, pending, callback))
            if events & READ:
                self._look_again(sock, pending)

    def _add(self, number: int, events: int, action: Callable[[int], None]) -> None:
        """Watches a descriptor, or watches it for other events from now on."""
        if number in self._watched:
            self._selector.modify(number, events)
        else:
            self._selector.register(number, events)
        self._watched[number] = events, action

    def pause(self, number: int) -> None:
        """Stops watching a descriptor until `watch` is called again, within `turn` only."""
        if self._watched.pop(number, None):
            self._selector.unregister(number)

    def unwatch(self, sock: socket.socket) -> None:
        """Stops watching a socket, within `turn` only."""
        self.watch(sock, 0, lambda _events: None)

    def _call(
        self, sock: socket.socket, pending: Callable[[], int], callback: Callable[[int], None], events: int
    ) -> None:
        """Calls back for a TLS stream, and looks whether that has left decrypted bytes."""
        callback(events)
        self._look_again(sock, pending)

    def _look_again(self, sock: socket.socket, pending: Callable[[], int]) -> None:
        """Calls back again for bytes that a TLS stream has decrypted and nobody has read: no selector sees them."""
        number = sock.fileno()
        if number >= 0 and number not in self._unseen and pending():
            self._unseen.add(number)
            self.call_soon(partial(self._read_again, number))

    def _read_again(self, number: int) -> None:
        """Calls back once more for a stream that is still watched for reading."""
        self._unseen.discard(number)
        events, action = self._watched.get(number, (0, None))
        if action is not None and events & READ:
            action(READ)

    def end(self, timeout_s: float = 1.0) -> None:
        """Stops after what is due now, and closes the selector."""
        self._ending = True
        self._ring()
        if self._thread.ident is None:
            self._close()
        elif not self.here:
            self._thread.join(timeout_s)

    def _ring(self) -> None:
        """Wakes the selector, unless a ring is on its way already."""
        if self._rung:
            return
        self._rung = True
        with contextlib.suppress(OSError):  # a closed pipe means that the loop has ended
            self._bell.send(b"\0")

    def _hear(self, _events: int) -> None:
        """Takes the ring. The flag is cleared before the turn that looks at what was asked: nothing is missed."""
        with contextlib.suppress(BlockingIOError):
            self._ear.recv(4096)
        self._rung = False  # before the turn that looks at what was asked, so that nothing asked later is missed

    def _run(self) -> None:
        """Is the thread's main function. An exception that escapes a callback is reported and ends the loop."""
        try:
            while not self._ending:
                self._turn()
        except BaseException as error:
            self._failed(error)
        finally:
            self._close()

    def _close(self) -> None:
        self._ended = True
        self._selector.close()
        self._bell.close()
        self._ear.close()

    def _turn(self) -> None:
        """Makes one turn: what was asked for, sockets that are ready, timers that are due.

        What a callback asks for waits until the next turn, so that no callback that asks for itself starves the
        sockets.
        """
        if self._soon:
            with self.turn:
                for _ in range(len(self._soon)):  # what these ask for waits until the sockets have had their turn
                    self._soon.popleft()()
        wait = self._timers[0][0] - time.monotonic() if self._timers else None
        wait = 0.0 if self._soon else wait
        found = self._select(wait)
        with self.turn:
            for number, events in found:  # also when a timer is due: neither starves the other
                wanted, action = self._watched.get(number, (0, None))
                # A callback before may have closed that socket. A broken one is ready for more than is wanted of it.
                if action is not None and events & wanted:
                    action(events & wanted)
            while self._timers and self._timers[0][0] <= time.monotonic():
                heapq.heappop(self._timers)[2]()

    def _select(self, wait: float | None) -> Sequence[tuple[int, int]]:
        """Returns the descriptors that are ready, with their events; waits for one, for `wait` seconds at most."""
        if self._spin is not None:
            found = self._spin.look(partial(self._selector.select, 0), math.inf if wait is None else wait)
            if found:
                return found
        return self._selector.select(wait)
