"""Over a thin link, what is on its way is waited for; what is not is not."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from paceline.chaos.proxy import ProxySet
from paceline.core.coordination.party import Party, server, worker
from paceline.core.effects import SERVERS, Call, Compute
from paceline.core.errors import TimedOut
from paceline.core.sharding import lay_out
from paceline.live.net.tcp_transport import TcpTransport
from paceline.live.node.node import Node
from tests.live.fakes import NumpyMemory
from tests.live.node_fixture import Answerer, Ask, Asker, Behind, echo, nothing

ME, OTHER = worker(0), server(0)
LENGTH = 250_000  # 1 MB, of which buffers on the way may hold a part
TIMEOUT_SECONDS = 1.5


class Ends:
    """A worker and a server over TCP, and a relay between them."""

    def __init__(self) -> None:
        self.relays = ProxySet()
        self.transports: list[TcpTransport] = []

    def node(self, who: Party) -> Node:
        transport = TcpTransport(who, "token", NumpyMemory())
        self.transports.append(transport)
        node = Node(transport, NumpyMemory(), timeout_s=TIMEOUT_SECONDS)
        transport.open(Behind(node))
        return node

    def asks(self, answer: object) -> tuple[Node, Asker]:
        """The worker's node and role, which sends a large vector and waits for another one."""
        v = np.arange(LENGTH, dtype=np.float32)
        self.node(OTHER).place(Answerer(answer), lay_out(LENGTH, 1))  # type: ignore[arg-type]
        asks, node = Asker(Call(SERVERS, Ask(v=v, n=1)), Compute(v)), self.node(ME)
        node.place(asks, lay_out(LENGTH, 1))
        way = self.relays.way(ME, OTHER, self.transports[0].address)
        self.transports[1].connect(OTHER, way)
        return node, asks

    def close(self) -> None:
        for transport in self.transports:
            transport.close()
        self.relays.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.close()


def test_a_vector_that_takes_longer_than_any_wait_may_is_waited_for_both_ways(ends: Ends) -> None:
    ends.relays.make_thin(OTHER, LENGTH * 4 / (2 * TIMEOUT_SECONDS))
    node, role = ends.asks(echo)
    began = time.monotonic()
    node.advance()
    assert time.monotonic() - began > 3 * TIMEOUT_SECONDS, "the link was thin, so that there was something to wait for"
    (said,) = role.results
    assert np.array_equal(said.v, np.arange(LENGTH, dtype=np.float32) * 2)


def test_an_answer_that_nobody_gives_is_not_waited_for_longer_once_the_question_is_there(ends: Ends) -> None:
    ends.relays.make_thin(OTHER, LENGTH * 4 / TIMEOUT_SECONDS)
    node, _ = ends.asks(nothing)
    with pytest.raises(TimedOut, match="the answer of servers to Ask"):
        node.advance()


def test_where_nothing_gets_through_any_more_the_wait_ends(ends: Ends) -> None:
    ends.relays.make_thin(OTHER, LENGTH * 4 / TIMEOUT_SECONDS)
    node, _ = ends.asks(echo)
    ends.relays.cut_off(OTHER)
    with pytest.raises(TimedOut, match="the answer of servers to Ask"):
        node.advance()
