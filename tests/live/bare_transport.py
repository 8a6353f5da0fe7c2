"""A party with a transport of its own, and nobody behind it: what tests of transports are made of."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Any

from paceline.core.coordination.control_messages import Total
from paceline.core.coordination.party import Party
from paceline.live.net.tcp_transport import TcpTransport
from paceline.live.protocol import frames
from paceline.live.protocol.transport import Envelope, Kind
from paceline.live.security import handshake
from tests.live.fakes import PATIENCE_SECONDS, NumpyMemory, Recorder, net_threads

TOKEN = "the token of this run"


class Someone:
    """A party with a transport and a handler that keeps what it is told."""

    def __init__(self, me: Party, token: str = TOKEN, heard: Recorder | None = None, **more: Any) -> None:
        self.heard = heard or Recorder()
        self.transport = TcpTransport(me, token, NumpyMemory(), **more)
        self.transport.open(self.heard)

    def say(self, to: Party, samples: int) -> None:
        self.transport.send(to, Envelope(Kind.CONTROL, Total(samples=samples)))

    def greeted(
        self,
        party: str = "worker 0",
        token: str = TOKEN,
        raw: bytes = b"",
        *,
        lane: bool = False,
        to: str = "",
        incarnation: int = 0,
    ) -> socket.socket:
        """A socket whose caller has made a handshake, whatever this party answered, and then said `raw`."""
        sock = self.call()
        prove(sock, greeting_of(party, to or str(self.transport.me), lane=lane, incarnation=incarnation), token)
        with contextlib.suppress(ConnectionError):  # it was sent away for its greeting
            sock.sendall(raw)
        return sock

    def call(self, raw: bytes = b"") -> socket.socket:
        """A stranger's socket, connected to this party, and what it says."""
        host, _, port = self.transport.address.rpartition(":")
        sock = socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)
        sock.sendall(raw)
        return sock


def greeting_of(party: str, to: str, *, lane: bool = False, incarnation: int = 0) -> handshake.Greeting:
    return handshake.Greeting(party=party, to=to, nonce=handshake.new_nonce(), lane=lane, incarnation=incarnation)


def prove(sock: socket.socket, greeting: handshake.Greeting, token: str = TOKEN) -> bytes:
    """Makes a handshake as its caller, and believes any listener; returns what it said."""
    said = bytes_of(greeting)
    with contextlib.suppress(ConnectionError):
        sock.sendall(said)
        said += (proof := bytes_of(handshake.Proof(proof=proof_by(greeting, challenge_from(sock).nonce, token))))
        sock.sendall(proof)
    return said


def admit(sock: socket.socket, token: str = TOKEN) -> None:
    """Makes a handshake as its listener, and believes any caller."""
    greeting, _ = handshake._hear(sock, handshake.Greeting, time.monotonic() + PATIENCE_SECONDS)
    nonce = handshake.new_nonce()
    proof = proof_by(greeting, nonce, token, handshake.LISTENER)
    sock.sendall(bytes_of(handshake.Challenge(nonce=nonce, proof=proof)))
    handshake._hear(sock, handshake.Proof, time.monotonic() + PATIENCE_SECONDS)


def challenge_from(sock: socket.socket) -> handshake.Challenge:
    return handshake._hear(sock, handshake.Challenge, time.monotonic() + PATIENCE_SECONDS)[0]


def proof_by(greeting: handshake.Greeting, nonce: bytes, token: str, side: str = handshake.CALLER) -> bytes:
    return handshake.proof_of(token, side, *handshake._said(greeting, nonce))


def bytes_of(message: Any) -> bytes:
    return b"".join(frames.encode(Envelope(Kind.CONTROL, message), NumpyMemory()))


def all_go(made: list[Someone]) -> None:
    """The end of every test: nothing failed unheard, and no thread is left."""
    for party in reversed(made):
        party.transport.close()
    failures = [party.heard.failures.get() for party in made if not party.heard.failures.empty()]
    assert failures == []
    assert net_threads() == []
