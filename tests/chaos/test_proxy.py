"""Ways that can be cut, over real sockets."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from paceline.chaos.proxy import ProxiedTransport, ProxySet
from paceline.core.coordination import party
from paceline.core.coordination.control_messages import Roster, WorkerJoined
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.fakes import PATIENCE_SECONDS

ME, OTHER, SERVER = party.worker(0), party.worker(1), party.server(0)


@pytest.fixture
def relays() -> Iterator[ProxySet]:
    made = ProxySet()
    yield made
    made.close()


@pytest.fixture
def echo() -> Iterator[str]:
    """The address of a server that says everything again."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(sock,), daemon=True).start()

    def answer(sock: socket.socket) -> None:
        with sock, contextlib.suppress(ConnectionError):  # whoever called may go with something unread
            while data := sock.recv(1 << 16):
                sock.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    yield f"127.0.0.1:{listener.getsockname()[1]} unix:paceline-1@x"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def call(way: str) -> socket.socket:
    host, _, port = way.partition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)


def say(sock: socket.socket, data: bytes) -> bytes:
    sock.sendall(data)
    return hear(sock, len(data))


def hear(sock: socket.socket, length: int) -> bytes:
    heard = b""
    while len(heard) < length and (piece := sock.recv(1 << 16)):
        heard += piece
    return heard


def is_silent(sock: socket.socket) -> bool:
    sock.settimeout(0.1)
    try:
        return sock.recv(1) == b"what is not silence"
    except TimeoutError:
        return True
    finally:
        sock.settimeout(PATIENCE_SECONDS)


def test_what_is_said_arrives_as_it_is(relays: ProxySet, echo: str) -> None:
    with call(relays.way(ME, SERVER, echo)) as sock:
        data = bytes(range(256)) * 4000
        assert say(sock, data) == data


@pytest.mark.parametrize("whom", [ME, SERVER])
def test_nothing_passes_while_either_end_is_cut_off_and_all_of_it_arrives_afterwards(
    relays: ProxySet, echo: str, whom: party.Party
) -> None:
    with call(relays.way(ME, SERVER, echo)) as sock, call(relays.way(OTHER, SERVER, echo)) as another:
        assert say(sock, b"one") == b"one"
        relays.cut_off(whom)
        relays.way(ME, OTHER, echo)  # whatever was asked before has been done by then
        sock.sendall(b"two")
        assert is_silent(sock)
        if whom == ME:
            assert say(another, b"meanwhile") == b"meanwhile"
        relays.let_through(whom)
        assert hear(sock, 3) == b"two"


def test_who_hangs_up_is_heard_by_the_other_side(relays: ProxySet, echo: str) -> None:
    with call(relays.way(ME, SERVER, echo)) as sock:
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(1) == b""  # the echo has heard of the end, and hung up itself


def test_where_nobody_listens_the_caller_is_hung_up_on(relays: ProxySet) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = f"127.0.0.1:{gone.getsockname()[1]}"
    with call(relays.way(ME, SERVER, address)) as sock:
        assert sock.recv(1) == b""


def test_everybody_is_told_ways_of_its_own_and_no_shared_memory(relays: ProxySet, echo: str) -> None:
    sent = []

    class Post:
        me = party.COORDINATOR

        def send(self, to: party.Party, envelope: Envelope) -> None:
            sent.append(envelope.message)

    transport = ProxiedTransport(Post(), relays)  # type: ignore[arg-type]
    roster = Roster(addresses={"server 0": echo}, hosts={"server 0": "here"})
    came = WorkerJoined(rank=1, incarnation=1, view=2, address=echo, host="here")
    for to, message in ((ME, roster), (OTHER, roster), (ME, came)):
        transport.send(to, Envelope(Kind.CONTROL, message))
    ways = [sent[0].addresses["server 0"], sent[1].addresses["server 0"], sent[2].address]
    assert len(set(ways)) == 3  # one for each who calls, and whom
    assert all("unix" not in way and way not in echo for way in ways)


def test_a_way_to_an_earlier_life_is_closed_and_its_connections_are_not(relays: ProxySet, echo: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as again:
        first = relays.way(ME, SERVER, echo)
        with call(first) as sock:
            assert say(sock, b"one") == b"one"
            second = relays.way(ME, SERVER, f"127.0.0.1:{again.getsockname()[1]}")
            with pytest.raises(ConnectionRefusedError):
                call(first)
            assert say(sock, b"two") == b"two"
            call(second).close()
