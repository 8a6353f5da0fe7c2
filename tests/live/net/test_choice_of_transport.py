"""Which way a connection takes: shared memory on one host where both sides can, TCP otherwise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from paceline.core.coordination.control_messages import Total
from paceline.core.coordination.party import server, worker
from paceline.core.errors import PeerLost
from paceline.core.paramserver.gated_server import Push
from paceline.live.protocol.transport import SHARED, TCP, Envelope, Kind
from paceline.live.same_host import unix_socket
from paceline.live.same_host.shared_memory import Segments
from tests.live.bare_transport import Someone

pytestmark = pytest.mark.skipif(not Segments.available(), reason="memory is shared on Linux only")


def test_two_of_one_host_share_memory(local: Callable[..., Someone]) -> None:
    lender = Segments()
    one, other = local(worker(0), lender), local(server(0), Segments())
    one.transport.connect(server(0), other.transport.address)
    room = lender.make(400_000)
    assert room is not None
    v = np.frombuffer(room, np.float32)
    v[:] = 2
    one.transport.send(server(0), Envelope(Kind.CALL, Push(g=v, clock=1, samples=1), 1))
    src, push = other.heard.next()
    assert (src, push.g.tolist()) == (worker(0), v.tolist())
    assert one.transport.way_to(server(0)) == other.transport.way_to(worker(0)) == SHARED
    assert one.transport.shared() == (v.nbytes, 0)
    assert other.transport.shared() == (0, v.nbytes)
    assert v.nbytes < one.transport.traffic()[0] < v.nbytes + 1000
    assert one.transport.traffic()[0] == other.transport.traffic()[1]


@pytest.mark.parametrize("who_shares", ["neither", "the one that calls", "the one that is called"])
def test_where_not_both_share_memory_it_is_tcp(who_shares: str, local: Callable[..., Someone]) -> None:
    one = local(worker(0), Segments() if who_shares == "the one that calls" else None)
    other = local(server(0), Segments() if who_shares == "the one that is called" else None)
    one.transport.connect(server(0), other.transport.address)
    one.say(server(0), 7)
    assert other.heard.next() == (worker(0), Total(samples=7))
    assert one.transport.way_to(server(0)) == TCP


@pytest.mark.parametrize("way", ["another host", "a name that is gone"])
def test_a_way_that_does_not_lead_there_is_passed_over(way: str, local: Callable[..., Someone]) -> None:
    one, other = local(worker(0), Segments()), local(server(0), Segments())
    tcp, there = other.transport.address.split()
    host = unix_socket.boot_id()
    wrong = there.replace(host, "b" + host[1:] + "0") if way == "another host" else f"unix:paceline-nobody@{host}"
    one.transport.connect(server(0), f"{tcp} {wrong}")
    assert one.transport.way_to(server(0)) == TCP


def test_who_insists_on_shared_memory_is_told_that_there_is_none(local: Callable[..., Someone]) -> None:
    one, other = local(worker(0), Segments(), shared_only=True), local(server(0))
    with pytest.raises(PeerLost, match="worker 0 shares no memory with server 0 at .*: use --transport auto"):
        one.transport.connect(server(0), other.transport.address)
