"""TLS 1.3 under a connection: both sides show a certificate of the run's own authority, which says what party they are.

The identity is a URI in the certificate, `urn:paceline:job:<id>:role:<kind>:<index>`: a certificate of another run, or
of another party than the one that was called, is refused. Credentials are a folder that only its owner can read:
`authority.pem`, the name of the run in `job`, and for each party a file with its certificate and key
(`paceline.live.security.certificate_authority` makes them).
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from paceline.core.coordination.party import Party
from paceline.core.errors import ConfigError, ProtocolError

HANDSHAKE_SECONDS = 5.0
RECORD_BYTES = 16 * 1024  # the most that TLS makes one record of
SHORT_BYTES = 2048  # buffers that are worth a copy, to share a record with their neighbours
READ_BYTES_MAX = 1 << 20  # in one call, so that other sockets get their turn


def identity(job: str, party: Party) -> str:
    """Returns the URI of a party in its certificate, which also names the run."""
    return f"urn:paceline:job:{job}:role:{party.kind}:{party.index}"


def file_of(party: Party) -> str:
    """Returns where certificate and key of `party` lie in the folder of credentials."""
    return f"{str(party).replace(' ', '-')}.pem"


class TlsStream(ssl.SSLSocket):
    """A stream that sends from where buffers lie and receives into where they shall lie, as plain sockets do.

    Sending and receiving may be on two threads: the library allows one at a time, so they take turns, record by record.
    """

    _lock: threading.Lock
    _taken = b""  # a record that the library has taken and that the kernel had no room for

    def __new__(cls, *args: Any, **more: Any) -> TlsStream:
        made = super().__new__(cls, *args, **more)
        made._lock = threading.Lock()  # here: the library makes these without calling __init__
        return made

    def sendmsg(self, buffers: Iterable[Any], *_: Any) -> int:  # type: ignore[override]
        """Sends as a plain socket does. Raises BlockingIOError.

        A record that the library has taken must leave before anything else. So all of it but one byte counts as sent:
        what is sent from counts as begun, nothing passes it, and somebody waits for room in the kernel.
        """
        sent = self._send_taken()
        for record in _records(buffers, skip=sent):
            if not self._sent(record):
                self._taken = bytes(record)
                sent += len(record) - 1
                break
            sent += len(record)
        if not sent:
            raise BlockingIOError
        return sent

    def _send_taken(self) -> int:
        """The byte of it that has not been counted, or nothing if there is no such record."""
        if not self._taken:
            return 0
        if not self._sent(self._taken):
            raise BlockingIOError
        self._taken = b""
        return 1

    def _sent(self, record: memoryview | bytes) -> bool:
        """Sends one record; returns False when the kernel has no room."""
        try:
            with self._lock:
                self.send(record)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return False
        return True

    def recv_into(self, buffer: Any, *_: Any) -> int:
        """Receives as a plain socket does. Raises BlockingIOError."""
        room = memoryview(buffer)[:READ_BYTES_MAX]
        received = 0
        while received < room.nbytes:
            try:
                with self._lock:
                    n = super().recv_into(room[received:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if not received:
                    raise BlockingIOError from None
                return received
            if not n:
                break
            received += n
        return received

    def pending(self) -> int:
        """Bytes that have come and that no selector sees any more."""
        with self._lock:
            return super().pending()


def _records(buffers: Iterable[Any], skip: int) -> Iterator[memoryview | bytes]:
    """Yields the bytes of `buffers` after `skip`, a record at a time: views of long buffers, short ones joined."""
    short: list[Any] = []
    size = 0
    for buffer in buffers:
        view = memoryview(buffer)[skip:]
        skip = max(0, skip - len(buffer))
        if short and size + view.nbytes > RECORD_BYTES:
            yield b"".join(short)
            short, size = [], 0
        if view.nbytes <= SHORT_BYTES:
            short.append(view)
            size += view.nbytes
            continue
        if short:
            yield b"".join(short)
            short, size = [], 0
        for begin in range(0, view.nbytes, RECORD_BYTES):
            yield view[begin : begin + RECORD_BYTES]
    if size:
        yield b"".join(short)


class Tls:
    """This has one party's credentials, and what it asks of the other side's."""

    def __init__(self, folder: str | Path, me: Party) -> None:
        """Raises ConfigError when the credentials cannot be used."""
        folder = Path(folder)
        try:
            self.job = (folder / "job").read_text(encoding="ascii").strip()
            self._server = _context(ssl.PROTOCOL_TLS_SERVER, folder, me)
            self._client = _context(ssl.PROTOCOL_TLS_CLIENT, folder, me)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the credentials of {me} in {folder} cannot be used: {error}") from None

    def call(self, sock: socket.socket, party: Party) -> TlsStream:
        """Over `sock`, which is connected and waits, with nobody but `party`. Raises OSError."""
        sock.settimeout(HANDSHAKE_SECONDS)
        stream = self._wrap(self._client, sock, server_side=False)
        try:
            stream.do_handshake()
            if (who := self.party_of(stream)) != party:
                raise ConnectionError(f"{who} answers there, with a certificate of this run")
        except (OSError, ProtocolError) as error:
            stream.close()
            raise error if isinstance(error, OSError) else ConnectionError(str(error)) from None
        return stream

    def answer(self, sock: socket.socket) -> TlsStream:
        """The side that was called; the handshake is still to be made."""
        sock.setblocking(False)
        return self._wrap(self._server, sock, server_side=True)

    def party_of(self, stream: TlsStream) -> Party:
        """Returns whom the other side's certificate names. Raises ProtocolError unless it names a party of this run."""
        certificate: dict[str, Any] = stream.getpeercert() or {}
        for kind, name in certificate.get("subjectAltName", ()):
            head, _, role = name.partition(":role:")
            if kind == "URI" and head == f"urn:paceline:job:{self.job}":
                try:
                    who = Party.parse(role.replace(":", " "))
                except ValueError:
                    continue
                if identity(self.job, who) == name:
                    return who
        raise ProtocolError("the certificate names no party of this run")

    @staticmethod
    def _wrap(context: ssl.SSLContext, sock: socket.socket, *, server_side: bool) -> TlsStream:
        """Returns the stream of a socket whose handshake is still to be made."""
        stream = context.wrap_socket(sock, server_side=server_side, do_handshake_on_connect=False)
        assert isinstance(stream, TlsStream)
        return stream


def _context(protocol: int, folder: Path, me: Party) -> ssl.SSLContext:
    """Returns the settings of TLS 1.3: both sides show a certificate of this run's authority.

    Host names are not checked, as a party is known by its URI, wherever it runs. Sessions are not resumed.
    """
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # a party is known by its URI, wherever it runs
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(folder / "authority.pem")
    context.load_cert_chain(folder / file_of(me))
    context.sslsocket_class = TlsStream
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # nobody resumes a session here
    return context


def reason(error: Exception) -> str:
    """Says what went wrong, without the library's line numbers."""
    if isinstance(error, ssl.SSLError) and getattr(error, "reason", None):  # not every one has it
        return f"TLS: {getattr(error, 'verify_message', '') or error.reason.lower().replace('_', ' ')}"
    return str(error)
