"""Unix sockets: who is let in, and who may pass descriptors."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from paceline.core.coordination.control_messages import Total
from paceline.core.coordination.party import COORDINATOR, server, worker
from paceline.live.protocol.transport import SHARED, TCP, Envelope, Kind
from paceline.live.same_host import unix_socket
from paceline.live.same_host.shared_memory import Segments
from paceline.live.same_host.unix_socket import UnixStream
from tests.live.bare_transport import Someone, greeting_of, prove
from tests.live.fakes import PATIENCE_SECONDS
from tests.live.net.test_tcp_transport import STRANGERS, greeting, hung_up_on
from tests.live.protocol.test_frames import bytes_of

pytestmark = pytest.mark.skipif(not Segments.available(), reason="memory is shared on Linux only")


def stranger(host: Someone, raw: bytes) -> socket.socket:
    sock = unix_socket.connect(unix_socket.name_in(host.transport.address), PATIENCE_SECONDS)
    sock.sendall(raw)
    return sock


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
