"""Messages that break off, and messages that come late, over real sockets."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable

import numpy as np
import pytest

from paceline.chaos.proxy import ProxySet
from paceline.core.coordination.control_messages import Total
from paceline.core.coordination.party import COORDINATOR, server, worker
from paceline.core.effects import SERVERS, Call, Compute
from paceline.core.errors import PeerLost
from paceline.core.paramserver.gated_server import Push
from paceline.core.sharding import lay_out
from paceline.live.net.tcp_transport import TcpTransport
from paceline.live.node.node import Node
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.bare_transport import Someone, admit
from tests.live.fakes import PATIENCE_SECONDS, NumpyMemory, in_background, take
from tests.live.node_fixture import Ask, Asker, Behind
from tests.live.protocol.test_frames import bytes_of

PUSH = bytes_of(Envelope(Kind.CALL, Push(g=np.arange(1000, dtype=np.float32), clock=1, samples=1)))


@pytest.mark.parametrize("sent", [1, 20, 40, len(PUSH) - 4000, len(PUSH) - 1])
def test_a_message_that_breaks_off_is_not_heard_and_its_sender_lost_until_it_comes_again(
    someone: Callable[..., Someone], sent: int
) -> None:
    host = someone(server(0))
    host.greeted(raw=PUSH[:sent]).close()
    assert take(host.heard.losses)[0] == worker(0)
    with host.greeted(raw=PUSH):
        src, push = host.heard.next()
    assert (src, push.g[-1]) == (worker(0), 999.0)
    assert host.heard.delivered.empty()


def breaks_off_after(listener: socket.socket, nbytes: int) -> None:
    sock, _ = listener.accept()
    with sock:
        admit(sock, "token")
        while nbytes > 0:
            nbytes -= len(sock.recv(min(nbytes, 1 << 16)))


def test_who_asks_hears_that_its_question_broke_off() -> None:
    transport = TcpTransport(worker(0), "token", NumpyMemory())
    node, v = Node(transport, NumpyMemory(), timeout_s=PATIENCE_SECONDS), np.zeros(1_000_000, np.float32)
    transport.open(Behind(node))
    with contextlib.closing(transport), socket.create_server(("127.0.0.1", 0)) as listener:
        broken = in_background(lambda: breaks_off_after(listener, v.nbytes // 2))
        node.place(Asker(Call(SERVERS, Ask(v=v, n=1)), Compute(v)), lay_out(len(v), 1))
        transport.connect(server(0), f"127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(PeerLost, match="server 0"):
            node.advance()
        broken()


def test_what_a_life_said_that_was_over_when_it_came_is_not_heard(someone: Callable[..., Someone]) -> None:
    host = someone(COORDINATOR)
    early, late = someone(worker(0)), someone(worker(0), incarnation=1)
    with contextlib.closing(ProxySet()) as relays:
        early.transport.connect(COORDINATOR, relays.way(worker(0), COORDINATOR, host.transport.address))
        early.say(COORDINATOR, 1)
        assert host.heard.next() == (worker(0), Total(samples=1))
        relays.cut_off(worker(0))
        early.say(COORDINATOR, 2)
        late.transport.connect(COORDINATOR, host.transport.address)
        late.say(COORDINATOR, 3)
        assert host.heard.next() == (worker(0), Total(samples=3))
        relays.let_through(worker(0))
        assert take(early.heard.losses)[0] == COORDINATOR
        late.say(COORDINATOR, 4)
        assert host.heard.next() == (worker(0), Total(samples=4))
        assert host.heard.delivered.empty()
