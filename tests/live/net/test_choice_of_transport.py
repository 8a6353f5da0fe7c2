"""Which way a connection takes: shared memory on one host where both sides can, TCP otherwise."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from paceline.core.errors import PeerLost
from paceline.core.paramserver.gated_server import Push
from paceline.live.party import COORDINATOR, Party, server, worker
from paceline.live.protocol.control_messages import Total
from paceline.live.protocol.transport import SHARED, TCP, Envelope, Kind
from paceline.live.same_host import unix_socket
from paceline.live.same_host.shared_memory import Segments
from paceline.live.same_host.unix_socket import UnixStream
from tests.live.bare_transport import Someone, all_go, greeting_of, prove
from tests.live.fakes import PATIENCE_SECONDS
from tests.live.net.test_tcp_transport import STRANGERS, greeting, hung_up_on
from tests.live.protocol.test_frames import bytes_of

pytestmark = pytest.mark.skipif(not Segments.available(), reason="memory is shared on Linux only")


@pytest.fixture
def local() -> Iterator[Callable[..., Someone]]:
    made: list[Someone] = []

    def make(me: Party, segments: Segments | None = None, **more: Any) -> Someone:
        made.append(Someone(me, segments=segments, **more))
        return made[-1]

    yield make
    all_go(made)


def stranger(host: Someone, raw: bytes) -> socket.socket:
    sock = unix_socket.connect(unix_socket.name_in(host.transport.address), PATIENCE_SECONDS)
    sock.sendall(raw)
    return sock


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


def test_another_user_is_not_let_in(monkeypatch: pytest.MonkeyPatch, local: Callable[..., Someone]) -> None:
    one, other = local(worker(0), Segments()), local(server(0), Segments())
    name = unix_socket.name_in(other.transport.address)
    monkeypatch.setattr(unix_socket, "same_user", lambda sock: False)
    with pytest.raises(PermissionError):
        unix_socket.connect(name, 1.0)
    one.transport.connect(server(0), other.transport.address)
    assert one.transport.way_to(server(0)) == TCP
    bare = socket.socket(socket.AF_UNIX)
    bare.connect(f"\0{name}")
    assert hung_up_on(bare)


@pytest.mark.parametrize("which", STRANGERS)
def test_a_stranger_is_refused_over_a_unix_stream_too(which: str, local: Callable[..., Someone]) -> None:
    host = local(COORDINATOR, Segments())
    assert hung_up_on(stranger(host, STRANGERS[which]))
    assert host.heard.rooms == []


def test_a_stranger_that_passes_descriptors_is_sent_away(local: Callable[..., Someone]) -> None:
    host = local(COORDINATOR, Segments())
    sock = stranger(host, b"")
    assert isinstance(sock, UnixStream)
    with open("/dev/null", "rb") as file:
        sock.pass_on(file.fileno())
        sock.sendmsg([greeting()[:5]])
    assert hung_up_on(sock)


def test_one_with_the_token_is_let_in_over_a_unix_stream(local: Callable[..., Someone]) -> None:
    host = local(COORDINATOR, Segments())
    with stranger(host, b"") as sock:
        prove(sock, greeting_of("worker 0", "coordinator"))
        sock.sendall(bytes_of(Envelope(Kind.CONTROL, Total(samples=1))))
        assert host.heard.next() == (worker(0), Total(samples=1))
        assert host.transport.way_to(worker(0)) == SHARED
