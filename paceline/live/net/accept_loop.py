"""Accepting: callers that have not said who they are, bounded, and TLS handshakes on a thread of their own.

    accepted --first byte--> handshake --finished--> `done`
        |                        |
        +------------------------+--> `refused`: too late, evicted, or the handshake failed

A handshake costs about a millisecond of CPU, most of it without Python's global lock. `TlsListener` makes them on its
own thread, so that the thread that moves a party's bytes is handed finished streams only. All callers that have not
finished are at most `limit`; when there are more, one is evicted: of the address that has most of them, the oldest that
has said nothing, else the oldest. A TLS session takes some 50 kB, so it begins with the caller's first byte.
"""

from __future__ import annotations

import errno
import ipaddress
import selectors
import socket
import ssl
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from paceline.core.errors import ProtocolError
from paceline.live.addresses import is_loopback
from paceline.live.event_loop import Loop
from paceline.live.security.tls import TlsStream, reason

BACKLOG = 4096  # connections that the kernel keeps for us, or as many as it allows: who finds no room waits for 1 s
ACCEPTED_MAX = 64
"""Callers accepted in one turn of a loop: fewer than may wait, so that none is evicted before it was read once."""
READ_AFTER = 2  # batches later, what a caller had said when it was accepted has been read
RETRY_SECONDS = 0.1
"""Seconds until the next try, when there is no descriptor left for a connection."""
FAILURES_FREE, FAILURES_PER_SECOND = 256, 64.0  # handshakes of one address that came to nothing
ADDRESSES_MAX = 1024
"""Addresses whose failures are remembered; the one that called longest ago is forgotten first."""
EVICTED = "it never said who it is, and others wait"
"""The reason that is logged for a caller that had to make room."""

T = TypeVar("T")

_NOT_NOW = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EPERM)


def accept(listener: socket.socket) -> tuple[list[socket.socket], bool]:
    """Returns the callers that wait, at most ACCEPTED_MAX, and whether the system has no descriptor for the next.

    If it has none the listener stays readable: it must not be watched for RETRY_SECONDS, or the loop would spin.
    """
    found: list[socket.socket] = []
    while len(found) < ACCEPTED_MAX:
        try:
            found.append(listener.accept()[0])
        except ConnectionError:  # this one has gone again
            continue
        except BlockingIOError:
            break
        except OSError as error:
            return found, error.errno in _NOT_NOW
    return found, False


def address_of(sock: socket.socket) -> str:
    """Returns where the other side is, as a log names it."""
    if sock.family == socket.AF_UNIX:
        return "this host"
    try:
        return str(sock.getpeername()[0])
    except OSError:
        return "an address that is gone"


class FailureLimit:
    """Limits the failed handshakes of each address, by a token bucket.

    A handshake takes a token when it begins and returns it when it succeeds, so parties of a run are never held up,
    however many call at once. An IPv6 network of 64 bits counts as one address. Loopback addresses are exempt: all
    callers there have the same one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, and when they were counted

    def take(self, address: str) -> bool:
        """Takes a token; returns False if the address must wait."""
        key = _network(address)
        if not key:
            return True
        tokens = self._tokens(key)
        self._keep(key, tokens - 1 if tokens >= 1 else tokens)
        return tokens >= 1

    def put_back(self, address: str) -> None:
        """Returns the token of a handshake that succeeded."""
        if key := _network(address):
            self._keep(key, min(FAILURES_FREE, self._tokens(key) + 1))

    def _tokens(self, key: str) -> float:
        """Returns the tokens that `key` has now: they come back at FAILURES_PER_SECOND."""
        now = self._clock()
        tokens, then = self._buckets.get(key, (float(FAILURES_FREE), now))
        return min(FAILURES_FREE, tokens + FAILURES_PER_SECOND * (now - then))

    def _keep(self, key: str, tokens: float) -> None:
        """Notes the tokens of `key`, and forgets an address where there are too many."""
        self._buckets[key] = tokens, self._clock()
        self._buckets.move_to_end(key)
        if len(self._buckets) > ADDRESSES_MAX:
            self._buckets.popitem(last=False)


def _network(address: str) -> str:
    """Returns the address, or its network; the text is empty for one without a limit."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if is_loopback(str(found)):
        return ""
    return str(found) if found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))


class _Caller:
    """Holds a caller whose handshake is not finished."""

    __slots__ = ("address", "batch", "begun", "sock", "until")

    def __init__(self, sock: socket.socket, until: float, batch: int) -> None:
        self.sock, self.until, self.batch = sock, until, batch
        self.address = address_of(sock)
        self.begun = False


class TlsListener(Generic[T]):
    """Accepts at `listener` and makes handshakes, on a thread of its own; `done` and `refused` are called there."""

    def __init__(
        self,
        name: str,
        listener: socket.socket,
        *,
        answer: Callable[[socket.socket], TlsStream],
        identify: Callable[[TlsStream], T],
        done: Callable[[TlsStream, T], None],
        refused: Callable[[str, str], None],
        failed: Callable[[BaseException], None],
        limit: int,
        seconds: float,
    ) -> None:
        """`answer` begins a handshake, `identify` says who called or raises ProtocolError.

        done: hears of a stream whose handshake is finished, and who called. refused: hears of an address and why it was
        sent away. limit: callers that have not finished. seconds: which a caller has, all in all.
        """
        self._answer, self._identify, self._done, self._refused = answer, identify, done, refused
        self._limit, self._seconds = limit, seconds
        self._listener = listener
        listener.setblocking(False)
        self._loop = Loop(name, failed)
        self._callers: dict[_Caller, None] = {}  # the oldest first
        self._failures = FailureLimit()
        self._batch = 0
        self._sweeping = self._closing = False

    def open(self) -> None:
        """Begins to accept, on its own thread."""
        self._loop.call_soon(self._listen)
        self._loop.start()

    def close(self) -> None:
        """Stops its thread and closes the listener and all callers; from any thread but its own."""
        self._loop.end()
        self._closing = True
        self._listener.close()
        for caller in list(self._callers):
            self._close(caller, "closed by this side")

    # ---- on its own thread -------------------------------------------------------------------------------
    def _listen(self) -> None:
        self._loop.watch(self._listener, selectors.EVENT_READ, self._accept)

    def _accept(self, _events: int) -> None:
        """Accepts who waits. Without a descriptor for the next one a caller is evicted, and it waits a moment."""
        found, full = accept(self._listener)
        self._batch += 1
        for sock in found:
            self._enter(sock)
        if full:
            self._evict("no descriptor is left")
            self._loop.unwatch(self._listener)
            self._loop.call_later(RETRY_SECONDS, self._listen)

    def _enter(self, sock: socket.socket) -> None:
        """Notes a caller, which has `seconds` from now on, and evicts another where there are too many.

        One timer serves all callers: it is set when the first comes, and set again while there are some.
        """
        if len(self._callers) >= self._limit:
            self._evict(EVICTED)
        sock.setblocking(False)
        caller = _Caller(sock, time.monotonic() + self._seconds, self._batch)
        self._callers[caller] = None
        self._watch(caller)
        if not self._sweeping:
            self._sweeping = True
            self._loop.call_later(self._seconds, self._sweep)

    def _evict(self, why: str) -> None:
        """Closes a caller of the address that has most of them.

        That is the oldest that has said nothing, though it had the time for it; else the oldest. So one address that
        opens many connections drives out its own, and not those of the run's parties.
        """
        if self._callers:
            addresses = Counter(caller.address for caller in self._callers)
            most = max(addresses.values())
            crowd = [caller for caller in self._callers if addresses[caller.address] == most]
            before = self._batch - READ_AFTER
            self._close(next((one for one in crowd if not one.begun and one.batch <= before), crowd[0]), why)

    def _sweep(self) -> None:
        """Closes callers that are late. All have the same time, so the oldest is the first to be late."""
        now = time.monotonic()
        while self._callers and (oldest := next(iter(self._callers))).until <= now:
            self._close(oldest, f"no handshake within {self._seconds:g} s")
        self._sweeping = bool(self._callers)
        if self._callers:
            self._loop.call_later(next(iter(self._callers)).until - now, self._sweep)

    def _watch(self, caller: _Caller) -> None:
        """Waits for the caller's first byte."""
        if caller in self._callers:
            self._loop.watch(caller.sock, selectors.EVENT_READ, partial(self._begin, caller))

    def _begin(self, caller: _Caller, _events: int) -> None:
        """Begins the handshake: the caller's first byte is there, or the end of its stream."""
        if caller not in self._callers:  # evicted in this same turn
            return
        self._loop.unwatch(caller.sock)
        if not self._failures.take(caller.address):
            self._loop.call_later(RETRY_SECONDS, partial(self._watch, caller))
            return
        caller.begun = True
        try:
            caller.sock = stream = self._answer(caller.sock)
        except OSError as error:  # it has gone already
            self._close(caller, reason(error))
        else:
            self._go_on(caller, stream, 0)

    def _go_on(self, caller: _Caller, stream: TlsStream, _events: int) -> None:
        """Takes the handshake as far as it comes without waiting; at its end the stream is handed to `done`."""
        if caller not in self._callers:
            return
        try:
            stream.do_handshake()
            who = self._identify(stream)
        except ssl.SSLWantReadError:
            self._loop.watch(stream, selectors.EVENT_READ, partial(self._go_on, caller, stream))
        except ssl.SSLWantWriteError:
            self._loop.watch(stream, selectors.EVENT_WRITE, partial(self._go_on, caller, stream))
        except (OSError, ProtocolError) as error:
            self._close(caller, reason(error))
        else:
            del self._callers[caller]
            self._loop.unwatch(stream)
            self._failures.put_back(caller.address)
            self._done(stream, who)

    def _close(self, caller: _Caller, why: str) -> None:
        """Closes a caller that has not finished, and says why, unless the listener itself closes."""
        del self._callers[caller]
        self._loop.unwatch(caller.sock)
        caller.sock.close()
        if not self._closing:
            self._refused(caller.address, why)
