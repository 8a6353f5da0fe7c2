"""One party calls another by a Unix stream on the same host where it can, else over TCP, under TLS or not.

Whichever way it is, caller and listener prove that they belong to the run (`paceline.live.security.handshake`).
"""

from __future__ import annotations

import contextlib
import functools
import socket
import ssl
import threading
from pathlib import Path

from paceline.core.coordination.party import Party
from paceline.core.errors import OtherVersion, PeerLost
from paceline.core.parties.first_contact import CallAttempts, GiveUp
from paceline.core.vector import Memory
from paceline.live.addresses import is_loopback
from paceline.live.protocol import frames
from paceline.live.same_host import unix_socket
from paceline.live.security.handshake import Greeting, greet, new_nonce
from paceline.live.security.tls import Tls, reason

CONNECT_SECONDS = 10.0
"""Seconds until a listener's kernel has answered."""
ANSWER_SECONDS = 30.0  # a listener may be busy with an update of the model, or stopped for a while
LOOPBACK_BUFFER_BYTES = 4 << 20
"""Bytes of the kernel's buffers on the loopback address."""
SENT_AWAY = (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""Errors of a listener that closes a stream before the handshake is finished, as one does to make room."""


class Dialer:
    """This is the dialer of one party. shares: it can share memory with others of its host; shared_only: it calls
    nobody else.
    """

    def __init__(
        self,
        me: Party,
        token: str,
        tls: Tls | None,
        memory: Memory,
        *,
        incarnation: int = 0,
        shares: bool,
        shared_only: bool,
    ) -> None:
        self._me, self._token, self._tls, self._memory, self._incarnation = me, token, tls, memory, incarnation
        self._shares, self._shared_only = shares, shared_only
        self.bytes_sent = self.bytes_received = 0  # in handshakes

    def reach(self, party: Party, address: str, *, lane: bool = False) -> socket.socket:
        """Returns a stream to `party`, which has proved that it belongs to the run; `lane` asks for TCP.

        A call that the listener sent away is repeated as `CallAttempts` says. Any other failure is final. Raises
        PeerLost, with the address and the reason; OtherVersion if it speaks another version of the protocol.
        """
        attempts = CallAttempts(frames.VERSION)
        while True:
            try:
                return self._call_once(party, address, lane)
            except SENT_AWAY as error:
                next_ = attempts.closed(reason(error))
            except frames.VersionMismatch as error:
                next_ = attempts.heard(error.theirs) or attempts.closed(str(error))
            except (OSError, ValueError) as error:
                next_ = GiveUp(reason(error))
            if isinstance(next_, GiveUp):
                lost = OtherVersion if next_.other_version else PeerLost
                raise lost(f"{self._me} cannot reach {party} at {address}: {next_.why}")
            threading.Event().wait(next_.after_s)

    def _call_once(self, party: Party, address: str, lane: bool) -> socket.socket:
        """Calls once, by the Unix stream if there is one, and makes the handshake. Raises OSError."""
        sock = (None if lane else self._on_this_host(party, address)) or self._over_tcp(party, address)
        greeting = Greeting(
            party=str(self._me), to=str(party), nonce=new_nonce(), lane=lane, incarnation=self._incarnation
        )
        try:
            sent, received = greet(sock, greeting, self._token, self._memory, ANSWER_SECONDS)
        except BaseException:
            sock.close()
            raise
        self.bytes_sent += sent
        self.bytes_received += received
        return sock

    def _on_this_host(self, party: Party, address: str) -> socket.socket | None:
        """Returns a Unix stream, or None where there is no such way; raises PeerLost where it must be one.

        A failure here proves nothing: another container may have the same kernel. TCP then asks for the same proof.
        """
        name = unix_socket.name_in(address) if self._shares else ""
        if name:
            with contextlib.suppress(OSError):  # the same kernel, but another container or user
                return unix_socket.connect(name, CONNECT_SECONDS)
        if self._shared_only:
            raise PeerLost(f"{self._me} shares no memory with {party} at {address}: use --transport auto")
        return None

    def _over_tcp(self, party: Party, address: str) -> socket.socket:
        """Returns a TCP stream, under TLS where this party has credentials.

        Without credentials it calls nobody beyond this machine, as others on the network could read and change the
        model.
        """
        host, _, port = address.partition(" ")[0].rpartition(":")
        sock = socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or a proof waits for an acknowledgement
        if stays_here(sock):
            widen(sock)
        elif self._tls is None:
            sock.close()
            raise ConnectionError("it is beyond this machine, and without TLS nobody is called there")
        return self._tls.call(sock, party) if self._tls else sock


def stays_here(sock: socket.socket) -> bool:
    """Returns True if a stream leads to the loopback address."""
    try:
        return is_loopback(sock.getpeername()[0])
    except OSError:  # gone already, as the next call will say
        return False


def widen(sock: socket.socket) -> None:
    """Make the most of the loopback address: elsewhere the kernel's own tuning knows better.

    Buffers that take a message of some megabytes in one system call, where the kernel's limits allow as much. And the
    simplest congestion control: there is no congestion here, and one that paces what it sends, such as BBR, takes a
    quarter longer over 100 MB.
    """
    if hasattr(socket, "TCP_CONGESTION"):
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    for option, limit in ((socket.SO_SNDBUF, "wmem_max"), (socket.SO_RCVBUF, "rmem_max")):
        if _kernel_limit(limit) >= LOOPBACK_BUFFER_BYTES:
            sock.setsockopt(socket.SOL_SOCKET, option, LOOPBACK_BUFFER_BYTES)


@functools.cache
def _kernel_limit(name: str) -> int:
    """Returns a limit of the kernel in bytes, 0 where the system does not say."""
    try:
        return int(Path("/proc/sys/net/core", name).read_text())
    except (OSError, ValueError):
        return 0
