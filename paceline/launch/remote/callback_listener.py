"""Listens under TLS for agents that have no standard input, and writes the ticket that admits them.

The ticket has the address, a token and the certificate of an authority made for this launch, whose only other
certificate is the launcher's own. Both sides prove that they know the token
(`paceline.launch.remote.agent_handshake`): an agent talks to nobody but its launcher, and callers without the token
are rejected.

    a caller                 bounded by                          afterwards
    in the TLS handshake     CALLERS_MAX, HANDSHAKE_SECONDS      a stranger
    a stranger               STRANGERS_MAX, HANDSHAKE_SECONDS    admitted, once it has proved the token
    admitted                 nothing                             its first Beat has told it so

With more, the oldest is evicted. An agent that is evicted before it was admitted calls again.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import secrets
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from paceline.core.coordination.party import COORDINATOR
from paceline.core.errors import ConfigError, PacelineError
from paceline.launch.remote import agent_messages as messages
from paceline.launch.remote.agent_handshake import Key, admit, introduce
from paceline.launch.remote.agent_messages import Event, Request
from paceline.launch.remote.message_stream import MessageStream, SocketStream
from paceline.live.net.accept_loop import BACKLOG, TlsListener
from paceline.live.net.dialer import SENT_AWAY
from paceline.live.same_host.temporary_folder import TemporaryFolder
from paceline.live.security.rejected_connections import Refusals
from paceline.live.security.tls import TlsStream, file_of

HANDSHAKE_SECONDS = 10.0
"""Seconds that a TLS handshake may take, from the first byte."""
CALL_SECONDS = 60.0  # an agent's patience, all in all
ADMIT_SECONDS = 20.0  # from an agent's hello until it is let in
AGAIN_SECONDS, AGAIN_SECONDS_MAX = 0.1, 2.0  # before an agent that was sent away calls again; twice as long each time
CALLERS_MAX = 256  # whose handshake is not finished
STRANGERS_MAX = 64  # whose handshake is finished, and who have proved nothing yet: a thread each
LOOK_SECONDS = 0.5  # between two looks whether anybody is still to come

Caller = tuple[MessageStream[Event], messages.AgentHello]


class CallbackListener:
    """Listens for agents until it is closed."""

    def __init__(self, address: str, port: int = 0, secret: str = "") -> None:
        """Listens on `address` of this machine; `port` 0 is any. Raises ConfigError.

        `secret`: whoever has the same can make the ticket (`ticket_from`); without one it is known by its text only.
        """
        from paceline.live.security.certificate_authority import CertificateAuthority, derived

        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            self._listener = socket.create_server((address, port), family=family, backlog=BACKLOG)
        except OSError as error:
            what, way_out = f"--interface {address}", "give an address of this machine"
            if port:
                what, way_out = f"{address}, port {port}", "give an address of this machine and a port that is free"
            raise ConfigError(f"{what}: {error.strerror}; {way_out}") from None
        authority = CertificateAuthority(secret)
        with TemporaryFolder("listener") as folder:
            place = Path(folder, "credentials")
            authority.write(place, [COORDINATOR])
            self._context = _context(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(place / file_of(COORDINATOR))
            certificate = _first_of((place / file_of(COORDINATOR)).read_text(encoding="ascii"))
        port = self._listener.getsockname()[1]
        token = derived(secret, "token", 16).hex() if secret else secrets.token_hex(16)
        self._key = Key(token, certificate)
        self.ticket = _ticket(address, port, token, authority.certificate)
        self._lock = threading.Lock()
        self._strangers: dict[TlsStream, None] = {}  # the oldest first
        self._agents: queue.SimpleQueue[Caller | None] = queue.SimpleQueue()
        self._tls_listener: TlsListener[None] = TlsListener(
            "listener for agents",
            self._listener,
            answer=self._answer,
            identify=lambda stream: None,
            done=self._welcome,
            refused=Refusals("the launcher").note,
            failed=self._failed,
            limit=CALLERS_MAX,
            seconds=HANDSHAKE_SECONDS,
        )
        self._tls_listener.open()

    def write_ticket(self, path: Path) -> None:
        """Writes the ticket to a new file that only its owner can read."""
        from paceline.live.security.certificate_authority import write_secret

        write_secret(path.parent, path.name, self.ticket.encode())

    def agents(
        self, count: int, seconds: float, *, given_up: Callable[[], str] = lambda: "", again: bool = False
    ) -> Iterator[Caller]:
        """Yields those who call, as they come, until there are `count`. `again`: a task that calls again counts once.

        Raises PacelineError when fewer call within `seconds`, or `given_up` says why they will not.
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
        """Returns the next caller; None when nobody is to come any more."""
        while (left := deadline - time.monotonic()) > 0 and not given_up():
            with contextlib.suppress(queue.Empty):
                return self._agents.get(timeout=min(left, LOOK_SECONDS))
        with contextlib.suppress(queue.Empty):  # who came in the last moment
            return self._agents.get_nowait()
        return None

    def caller(self) -> Caller | None:
        """Returns the next caller; None once the listener is closed."""
        return self._agents.get()

    def close(self) -> None:
        """Stops to listen, and closes the streams of those who have proved nothing yet."""
        self._agents.put(None)
        self._tls_listener.close()
        with self._lock:
            for stream in self._strangers:
                _cut(stream)

    # ---- who calls ---------------------------------------------------------------------------------------
    def _answer(self, sock: socket.socket) -> TlsStream:
        """Begins the TLS handshake with a caller."""
        stream = self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        assert isinstance(stream, TlsStream)
        return stream

    def _failed(self, error: BaseException) -> None:
        """Says that no agent can call any more, and lets who waits for one go on."""
        print(f"paceline: nobody can call the launcher any more: {error!r}", file=sys.stderr, flush=True)
        self._agents.put(None)

    def _welcome(self, stream: TlsStream, _: None) -> None:
        """Hears out a caller whose TLS handshake is finished, on a thread of its own; the oldest one may be evicted for
        it."""
        with self._lock:
            if len(self._strangers) >= STRANGERS_MAX:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                _cut(oldest)
            self._strangers[stream] = None
        try:
            threading.Thread(target=self._hear_out, args=(stream,), name="stranger", daemon=True).start()
        except RuntimeError:  # the system has no thread left; it calls again
            self._admit(stream)
            stream.close()

    def _hear_out(self, stream: TlsStream) -> None:
        """Admits a caller that proves the token in time, and closes the connection of any other."""
        deadline = time.monotonic() + HANDSHAKE_SECONDS
        try:
            lines: MessageStream[Event] = MessageStream(SocketStream(stream), Event)
            hello = admit(lines, self._key, deadline)
            if hello is not None and self._admit(stream):
                lines.say(messages.AgentBeat())
                self._agents.put((lines, hello))
                return
        except OSError:
            pass
        self._admit(stream)
        stream.close()

    def _admit(self, stream: TlsStream) -> bool:
        """Protects a caller from eviction; returns False if it was evicted before."""
        with self._lock:
            there = stream in self._strangers
            self._strangers.pop(stream, None)
        return there


def _cut(stream: TlsStream) -> None:
    """Wakes the thread that reads a connection, which then closes it."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(stream, socket.SHUT_RDWR)


def _missing(came: int, count: int, why: str) -> NoReturn:
    """Raises PacelineError about agents that did not call."""
    raise PacelineError(f"{came} of {count} agents called back: {why}")


def _ticket(host: str, port: int, token: str, authority: bytes) -> str:
    """Returns the ticket of an agent as JSON: where to call, by which token, and whom to trust."""
    return json.dumps({"host": host, "port": port, "token": token, "authority": authority.decode()})


def ticket_from(secret: str, host: str, port: int) -> str:
    """Returns the ticket of the listener that was opened at that address with the same secret."""
    from paceline.live.security.certificate_authority import CertificateAuthority, derived

    return _ticket(host, port, derived(secret, "token", 16).hex(), CertificateAuthority(secret).certificate)


def enter(ticket: Path, hello: Callable[[], messages.AgentHello]) -> tuple[MessageStream[Request], str]:
    """Calls the launcher that wrote `ticket`; returns the stream, and this host's address on that way.

    hello: makes what to say. A caller that is sent away because too many call calls again, for CALL_SECONDS. Raises
    ConfigError for a ticket that is none, PacelineError where nobody answers or somebody else does.
    """
    text = _read(ticket)
    deadline, pause_s, waiting = time.monotonic() + CALL_SECONDS, AGAIN_SECONDS, threading.Event()
    while True:
        try:
            return enter_once(text, hello)
        except SentAway:
            if time.monotonic() + pause_s > deadline:
                raise
        waiting.wait(random.uniform(0.5, 1.0) * pause_s)  # lest all that were sent away come back together
        pause_s = min(2 * pause_s, AGAIN_SECONDS_MAX)


def enter_once(ticket: str, hello: Callable[[], messages.AgentHello]) -> tuple[MessageStream[Request], str]:
    """Does what `enter` does, once, by the text of a ticket. Raises SentAway as well, and what `call` does."""
    stream, key, address = call(ticket)
    lines: MessageStream[Request] = MessageStream(stream, Request)
    try:
        let_in = introduce(lines, key, hello, ADMIT_SECONDS) and lines.answered(ADMIT_SECONDS)
    except PacelineError as error:
        stream.free()
        raise PacelineError(f"the launcher at {_where(ticket)} is not the one that is called: {error}") from None
    if not let_in:
        stream.free()
        raise SentAway(f"the launcher at {_where(ticket)} closed the connection before it had let this process in")
    return lines, address


def _where(ticket: str) -> str:
    """Returns the launcher's address in a ticket."""
    told = json.loads(ticket)
    return f"{told['host']}:{told['port']}"


class SentAway(PacelineError):  # noqa: N818
    """Is raised when the launcher closed the connection before it had admitted the caller, which may call again."""


def _read(ticket: Path) -> str:
    """Returns the text of a ticket. Raises ConfigError for what is no ticket, or could be another's."""
    try:
        if os.stat(ticket).st_mode & 0o077:
            raise ConfigError(f"{ticket} can be read by others: give it mode 0600")
        text = ticket.read_text(encoding="utf-8")
        told = json.loads(text)
        _ = told["authority"], str(told["host"]), int(told["port"]), str(told["token"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{ticket} is no ticket of a launcher: {error}") from None
    return text


def call(ticket: str) -> tuple[SocketStream, Key, str]:
    """Calls the launcher that wrote this text of a ticket; returns the stream, what is to be proved, and this host's
    address.

    Raises PacelineError where nobody answers or somebody else does; ValueError, KeyError, TypeError for no ticket.
    """
    told = json.loads(ticket)
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=told["authority"])
    host, port, token = str(told["host"]), int(told["port"]), str(told["token"])
    try:
        sock = socket.create_connection((host, port), timeout=CALL_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or the hello waits for an acknowledgement
        stream = context.wrap_socket(sock)
    except SENT_AWAY as error:
        raise SentAway(f"the launcher at {host}:{port} cannot be reached: {error}") from None
    except OSError as error:
        raise PacelineError(f"the launcher at {host}:{port} cannot be reached: {error}") from None
    assert isinstance(stream, TlsStream)
    key = Key(token, stream.getpeercert(binary_form=True) or b"")
    return SocketStream(stream), key, str(stream.getsockname()[0])


def _first_of(pem: str) -> bytes:
    """Returns the first certificate, as DER."""
    end = "-----END CERTIFICATE-----"
    return ssl.PEM_cert_to_DER_cert(pem.partition(end)[0] + end)


def _context(protocol: int) -> ssl.SSLContext:
    """Returns a TLS context: version 1.3, without host names, since the launcher is known by its authority wherever it
    is."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the launcher is known by who vouches for it, wherever it is
    context.sslsocket_class = TlsStream
    context.verify_mode = ssl.CERT_NONE
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    return context
