"""Where agents that cannot be given input call back: a listener under TLS, and the ticket that lets them in.

The ticket has the address, a token and the certificate of an authority made for this launch, whose only other
certificate is the launcher's own: an agent talks to nobody else, and whoever has no token is sent away.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import queue
import secrets
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from paceline.core.errors import ConfigError, PacelineError
from paceline.launch import words
from paceline.launch.words import Event, Lines, SocketStream
from paceline.live.party import COORDINATOR
from paceline.live.tls import TlsStream, file_of

HANDSHAKE_SECONDS = 10.0
CALL_SECONDS = 60.0  # an agent's patience: others may be before it
STRANGERS_MAX = 64
HELLO_BYTES_MAX = 1 << 16
LOOK_SECONDS = 0.5  # between two looks whether anybody is still to come

Caller = tuple[Lines[Event], words.Hello]


class Door:
    """Open until it is closed."""

    def __init__(self, address: str, port: int = 0, secret: str = "") -> None:
        """Listens on `address` of this machine; `port` 0 is any. Raises ConfigError.

        `secret`: whoever has the same can make the ticket (`ticket_from`); without one it is known by its text only.
        """
        from paceline.job.authority import Authority, derived

        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            self._listener = socket.create_server((address, port), family=family, backlog=256)
        except OSError as error:
            what, way_out = f"--interface {address}", "give an address of this machine"
            if port:
                what, way_out = f"{address}, port {port}", "give an address of this machine and a port that is free"
            raise ConfigError(f"{what}: {error.strerror}; {way_out}") from None
        authority = Authority(secret)
        with tempfile.TemporaryDirectory(prefix="paceline-door-") as folder:
            place = Path(folder, "credentials")
            authority.write(place, [COORDINATOR])
            self._context = _context(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(place / file_of(COORDINATOR))
        port = self._listener.getsockname()[1]
        self._token = derived(secret, "token", 16).hex() if secret else secrets.token_hex(16)
        self.ticket = _ticket(address, port, self._token, authority.certificate)
        self._strangers = threading.BoundedSemaphore(STRANGERS_MAX)
        self._agents: queue.SimpleQueue[Caller | None] = queue.SimpleQueue()
        threading.Thread(target=self._accept, name="door", daemon=True).start()

    def write_ticket(self, path: Path) -> None:
        """A new file that only its owner can read."""
        from paceline.job.authority import write_secret

        write_secret(path.parent, path.name, self.ticket.encode())

    def agents(
        self, count: int, seconds: float, *, given_up: Callable[[], str] = lambda: "", again: bool = False
    ) -> Iterator[Caller]:
        """Those who call, as they come. `again`: one whose task has called before counts once, and is its next life.

        Raises PacelineError when fewer than `count` do within `seconds`, or `given_up` says why they will not.
        """
        deadline = time.monotonic() + seconds
        came, tasks = 0, set[int]()
        while came < count:
            caller = self._next(deadline, given_up)
            if caller is None:
                _missing(came, count, given_up() or f"{seconds:.0f} s are over")
            tasks.add(caller[1].task)
            came = len(tasks) if again else came + 1
            yield caller

    def _next(self, deadline: float, given_up: Callable[[], str]) -> Caller | None:
        """None where nobody is to come."""
        while (left := deadline - time.monotonic()) > 0 and not given_up():
            with contextlib.suppress(queue.Empty):
                return self._agents.get(timeout=min(left, LOOK_SECONDS))
        with contextlib.suppress(queue.Empty):  # who came in the last moment
            return self._agents.get_nowait()
        return None

    def caller(self) -> Caller | None:
        """The next who calls; None once the door is closed."""
        return self._agents.get()

    def close(self) -> None:
        self._agents.put(None)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except ConnectionError:
                continue
            except OSError:
                return
            self._strangers.acquire()  # further callers wait in the backlog: agents call once
            threading.Thread(target=self._hear_out, args=(sock,), name="stranger", daemon=True).start()

    def _hear_out(self, sock: socket.socket) -> None:
        """Whoever has not shown a token in time, all in all, makes room for the next."""
        deadline = time.monotonic() + HANDSHAKE_SECONDS
        try:
            sock.settimeout(HANDSHAKE_SECONDS)
            stream = self._context.wrap_socket(sock, server_side=True)
            assert isinstance(stream, TlsStream)
            lines: Lines[Event] = Lines(SocketStream(stream), Event)
            hello = lines.hear(deadline=deadline, bytes_max=HELLO_BYTES_MAX)
            if isinstance(hello, words.Hello) and hmac.compare_digest(hello.token.encode(), self._token.encode()):
                self._agents.put((lines, hello))
            else:
                stream.close()
        except OSError:
            sock.close()
        finally:
            self._strangers.release()


def _missing(came: int, count: int, why: str) -> NoReturn:
    raise PacelineError(f"{came} of {count} agents called back: {why}")


def _ticket(host: str, port: int, token: str, authority: bytes) -> str:
    return json.dumps({"host": host, "port": port, "token": token, "authority": authority.decode()})


def ticket_from(secret: str, host: str, port: int) -> str:
    """To the door that was opened there with the same secret."""
    from paceline.job.authority import Authority, derived

    return _ticket(host, port, derived(secret, "token", 16).hex(), Authority(secret).certificate)


def dial(ticket: Path) -> tuple[SocketStream, str, str]:
    """Call the launcher that wrote `ticket`: the stream, the token to show, and this host's address on that way.

    Raises ConfigError for a ticket that is none, PacelineError where nobody answers or somebody else does.
    """
    try:
        if os.stat(ticket).st_mode & 0o077:
            raise ConfigError(f"{ticket} can be read by others: give it mode 0600")
        return call(ticket.read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, PacelineError):
            raise
        raise ConfigError(f"{ticket} is no ticket of a launcher: {error}") from None


def call(ticket: str) -> tuple[SocketStream, str, str]:
    """As `dial`, by the text of a ticket. Raises ValueError, KeyError and TypeError for one that is none."""
    told = json.loads(ticket)
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=told["authority"])
    host, port, token = str(told["host"]), int(told["port"]), str(told["token"])
    try:
        stream = context.wrap_socket(socket.create_connection((host, port), timeout=CALL_SECONDS))
    except OSError as error:
        raise PacelineError(f"the launcher at {host}:{port} cannot be reached: {error}") from None
    assert isinstance(stream, TlsStream)
    return SocketStream(stream), token, str(stream.getsockname()[0])


def _context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the launcher is known by who vouches for it, wherever it is
    context.sslsocket_class = TlsStream
    context.verify_mode = ssl.CERT_NONE
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    return context
