"""A party with a transport of its own, and nobody behind it: what tests of transports are made of."""

from __future__ import annotations

import socket
from typing import Any

from paceline.live.control import Total
from paceline.live.party import Party
from paceline.live.tcp import TcpTransport
from paceline.live.transport import Envelope, Kind
from tests.live.doubles import PATIENCE_SECONDS, NumpyMemory, Recorder, net_threads

TOKEN = "the token of this run"


class Someone:
    """A party with a transport and a handler that keeps what it is told."""

    def __init__(self, me: Party, token: str = TOKEN, **more: Any) -> None:
        self.heard = Recorder()
        self.transport = TcpTransport(me, token, NumpyMemory(), **more)
        self.transport.open(self.heard)

    def say(self, to: Party, samples: int) -> None:
        self.transport.send(to, Envelope(Kind.CONTROL, Total(samples=samples)))

    def call(self, raw: bytes = b"") -> socket.socket:
        """A stranger's socket, connected to this party, and what it says."""
        host, _, port = self.transport.address.rpartition(":")
        sock = socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)
        sock.sendall(raw)
        return sock


def all_go(made: list[Someone]) -> None:
    """The end of every test: nothing failed unheard, and no thread is left."""
    for party in reversed(made):
        party.transport.close()
    failures = [party.heard.failures.get() for party in made if not party.heard.failures.empty()]
    assert failures == []
    assert net_threads() == []
