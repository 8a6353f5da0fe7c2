"""Handshakes: caller and listener prove to one another that they have the run's token, which itself is never sent.

    caller    Greeting     who calls, whom it calls, in which incarnation, and a nonce
    listener  Challenge    a nonce of its own, and its proof
    caller    Proof        its own proof; after it whatever the parties have to say

A proof is HMAC-SHA256 under the token, over the side that gives it, the Greeting and the listener's nonce. A proof of
one side is no proof of the other (reflection), a recorded one fits no other connection (replay), and what a caller has
proved to one party it has not proved to another. Whoever listens on the port of a party that is gone sees a Greeting
and nothing else: the caller sends no more before it has checked the listener's proof.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import time
from typing import Annotated, Any, TypeVar

import msgspec

from paceline.core.coordination.party import Party
from paceline.core.errors import ProtocolError
from paceline.core.message import message
from paceline.core.validation import bounds
from paceline.core.vector import Memory
from paceline.live.protocol import frames
from paceline.live.protocol.transport import Envelope, Kind

NAMED_MAX = 40
"""Characters of a stranger's text that stand in a log."""
NONCE_BYTES = 32  # and of a proof
CALLER, LISTENER = "caller", "listener"
M = TypeVar("M")
Nonce = Annotated[bytes, bounds.Text(NONCE_BYTES)]


@message("handshake.Greeting", plane="connection")
class Greeting:
    """This is the first frame of a stream. `lane`: a further stream of a connection."""

    party: bounds.Name
    to: bounds.Name
    nonce: Nonce
    lane: bool = False
    incarnation: bounds.Count = 0


@message("handshake.Challenge", plane="connection")
class Challenge:
    """Answers a greeting: the listener's nonce, and its proof that it has the token."""

    nonce: Nonce
    proof: Nonce


@message("handshake.Proof", plane="connection")
class Proof:
    """Ends the handshake: the caller's proof, over both nonces."""

    proof: Nonce


def new_nonce() -> bytes:
    """Returns random bytes, new for each handshake."""
    return secrets.token_bytes(NONCE_BYTES)


def proof_of(token: str, side: str, *said: Any) -> bytes:
    """Returns the proof that `side` gives of what both sides have said.

    msgpack keeps the borders between the parts, so that no two different conversations give the same bytes.
    """
    return hmac.digest(token.encode(), msgspec.msgpack.encode(("paceline handshake", side, *said)), "sha256")


def is_proof(proof: bytes, token: str, side: str, *said: Any) -> bool:
    """Returns True if `proof` is right. It compares in constant time, so that nobody can guess byte by byte."""
    return hmac.compare_digest(proof, proof_of(token, side, *said))


def _said(greeting: Greeting, nonce: bytes) -> tuple[Any, ...]:
    """Returns what is proved, in the order of the fields."""
    return greeting.party, greeting.to, greeting.nonce, greeting.lane, greeting.incarnation, nonce


# ---- the listener ----------------------------------------------------------------------------------------
class ListenerSide:
    """This is the listener's side of one stream. certified: who the caller must be, by its certificate."""

    def __init__(self, me: Party, token: str, certified: Party | None) -> None:
        self._me, self._token, self._certified = me, token, certified
        self._nonce = b""
        self._greeting: Greeting | None = None

    def hear(self, said: Any) -> Challenge | tuple[Party, Greeting]:
        """Returns what to answer to a message; after the last one, who calls and its greeting.

        Raises ProtocolError for anybody who does not have the token.
        """
        if self._greeting is None:
            return self._challenge(said)
        if not isinstance(said, Proof) or not is_proof(
            said.proof, self._token, CALLER, *_said(self._greeting, self._nonce)
        ):
            raise ProtocolError("the caller does not have the token of this run")
        return Party.parse(self._greeting.party), self._greeting

    def _challenge(self, greeting: Any) -> Challenge:
        """Returns the challenge. Raises ProtocolError where the caller wants another party or is another one."""
        if not isinstance(greeting, Greeting) or len(greeting.nonce) != NONCE_BYTES:
            raise ProtocolError("the caller did not greet")
        try:
            party = Party.parse(greeting.party)
        except ValueError as error:
            raise ProtocolError(str(error)) from None
        if greeting.to != str(self._me):
            raise ProtocolError(f"{party} calls {greeting.to[:NAMED_MAX]!r}, and this is {self._me}")
        if self._certified not in (None, party):
            raise ProtocolError(f"{party} greets with the certificate of {self._certified}")
        self._greeting, self._nonce = greeting, new_nonce()
        return Challenge(nonce=self._nonce, proof=proof_of(self._token, LISTENER, *_said(self._greeting, self._nonce)))


# ---- the caller ------------------------------------------------------------------------------------------
def greet(sock: socket.socket, greeting: Greeting, token: str, memory: Memory, seconds: float) -> tuple[int, int]:
    """Makes the caller's side of a handshake, over a connected socket that waits; returns the bytes out and in.

    seconds: which the listener has to answer.
    Raises OSError when it goes away, says nothing or does not have the token, and VersionMismatch if it speaks another
    version. Calling again may help only after a ConnectionResetError: a listener that makes room for others closes
    connections in this way.
    """
    deadline = time.monotonic() + seconds
    sent = _send(sock, greeting, memory)
    try:
        challenge, received = _hear(sock, Challenge, deadline)
        if len(challenge.nonce) != NONCE_BYTES:
            raise ProtocolError("the challenge has no nonce")
    except TimeoutError:
        raise TimeoutError(f"it accepts connections, but did not answer within {seconds:g} s") from None
    except frames.VersionMismatch:
        raise
    except ProtocolError as error:
        raise PermissionError(f"whoever listens there is no party of this run: {error}") from None
    if not is_proof(challenge.proof, token, LISTENER, *_said(greeting, challenge.nonce)):
        raise PermissionError(
            f"whoever listens there does not have the token of this run, so it is not {greeting.to}: "
            "another program or another run has taken the address"
        )
    sent += _send(sock, Proof(proof=proof_of(token, CALLER, *_said(greeting, challenge.nonce))), memory)
    return sent, received


def _send(sock: socket.socket, said: Greeting | Proof, memory: Memory) -> int:
    """Sends one message; returns the bytes of its frame."""
    [frame] = frames.encode(Envelope(Kind.CONTROL, said), memory)
    sock.sendall(frame)
    return frame.nbytes


def _hear(sock: socket.socket, wanted: type[M], deadline: float) -> tuple[M, int]:
    """Receives one message of type `wanted`; returns it and its bytes.

    No byte more is taken from the socket: what follows belongs to the connection. Raises OSError when the stream ends
    or the time is over, and ProtocolError for any other message.
    """
    prefix = frames.decode_prefix(_take(sock, frames.PREFIX.size, deadline), body_bytes_max=0)
    header = frames.decode_header(_take(sock, prefix.header_bytes, deadline), 0)
    said = frames.assemble(header.codec, header.scalars, ())
    if prefix.kind != Kind.CONTROL or not isinstance(said, wanted):
        raise ProtocolError(f"{header.codec.name} instead of a {wanted.__name__.lower()}")
    return said, frames.PREFIX.size + prefix.header_bytes


def _take(sock: socket.socket, size: int, deadline: float) -> memoryview:
    """Receives exactly `size` bytes. Raises TimeoutError, and ConnectionResetError at the end of the stream."""
    taken, filled = memoryview(bytearray(size)), 0
    while filled < size:
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        n = sock.recv_into(taken[filled:])
        if not n:
            raise ConnectionResetError("it closed the connection before it had proved who it is")
        filled += n
    return taken
