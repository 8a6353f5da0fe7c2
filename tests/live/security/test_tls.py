"""Parties under TLS: who is let in by its certificate, and that what travels is what was sent."""

from __future__ import annotations

import datetime
import logging
import queue
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.core.coordination.control_messages import Total
from paceline.core.coordination.party import COORDINATOR, Party, server, worker
from paceline.core.errors import ConfigError, PeerLost
from paceline.core.paramserver.gated_server import Push
from paceline.core.parties import first_contact
from paceline.live.net import tcp_transport
from paceline.live.protocol.transport import Envelope, Kind
from paceline.live.security import certificate_authority
from paceline.live.security.certificate_authority import CertificateAuthority
from paceline.live.security.tls import Tls, TlsStream, file_of
from tests.launch.process_tree import within
from tests.live.bare_transport import Someone, all_go
from tests.live.fakes import PATIENCE_SECONDS, take, tcp_pair
from tests.live.net.test_tcp_transport import greeting, hung_up_on

pytest.importorskip("cryptography", reason="`make` installs what a run's authority needs")


PARTIES = [COORDINATOR, server(0), worker(0), worker(1)]


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of another run."""
    made = tmp_path_factory.mktemp("other") / "credentials"
    CertificateAuthority().write(made, PARTIES)
    return made


@pytest.fixture
def someone(folder: Path) -> Iterator[Callable[..., Someone]]:
    made: list[Someone] = []

    def make(me: Party, credentials: Path = folder, **more: Any) -> Someone:
        made.append(Someone(me, tls=Tls(credentials, me), **more))
        return made[-1]

    yield make
    all_go(made)


@pytest.mark.parametrize("streams", [1, 3])
def test_what_travels_is_what_was_sent_both_ways_and_over_several_streams(
    someone: Callable[..., Someone], streams: int
) -> None:
    host, guest = someone(server(0)), someone(worker(0), streams=streams)
    guest.transport.connect(server(0), host.transport.address)
    lengths = [1, 5000, 200_000, 1_500_000, 3]
    for clock, length in enumerate(lengths):
        v = np.arange(clock, clock + length, dtype=np.float32)
        guest.transport.send(server(0), Envelope(Kind.CALL, Push(g=v, clock=clock, samples=1), clock))
    for clock, length in enumerate(lengths):
        assert np.array_equal(host.heard.next()[1].g, np.arange(clock, clock + length, dtype=np.float32))
    host.transport.send(worker(0), Envelope(Kind.REPLY, Push(g=np.ones(400_000, np.float32), clock=9, samples=1)))
    assert guest.heard.next()[1].g.sum() == 400_000


def test_control_passes_vectors_that_wait_and_nothing_is_torn(someone: Callable[..., Someone]) -> None:
    host, guest = someone(server(0)), someone(worker(0))
    guest.transport.connect(server(0), host.transport.address)
    for clock in range(8):
        v = np.full(700_000, clock, np.float32)
        guest.transport.send(server(0), Envelope(Kind.CALL, Push(g=v, clock=clock, samples=1), clock))
        guest.say(server(0), clock)
    heard = [host.heard.next()[1] for _ in range(16)]
    assert [m.samples for m in heard if isinstance(m, Total)] == list(range(8))
    assert [(m.clock, m.g.min(), m.g.max()) for m in heard if isinstance(m, Push)] == [(n, n, n) for n in range(8)]


def test_a_record_that_the_kernel_had_no_room_for_leaves_before_anything_else(folder: Path) -> None:
    """Its caller may offer something else behind the byte that has not been counted; that byte is not sent twice."""
    one, other = tcp_pair()
    answered = Tls(folder, server(0)).answer(other)
    answered.setblocking(True)
    calls: queue.SimpleQueue[TlsStream] = queue.SimpleQueue()

    thread = threading.Thread(target=lambda: calls.put(Tls(folder, worker(0)).call(one, server(0))))
    thread.start()
    answered.do_handshake()
    thread.join()
    calling = take(calls)
    calling.setblocking(False)
    data = np.random.default_rng(1).integers(0, 256, 40_000_000, np.uint8).tobytes()
    at, blocked, received = 0, 0, bytearray()
    answered.setblocking(False)
    room = bytearray(1 << 19)
    while len(received) < len(data):
        while at < len(data):
            try:
                at += calling.sendmsg([memoryview(data)[at : at + 100], memoryview(data)[at + 100 : at + 300_000]])
            except BlockingIOError:
                blocked += 1
                break
        while True:
            try:
                n = answered.recv_into(room)
            except BlockingIOError:
                break
            received += room[:n]
    assert bytes(received) == data
    assert blocked > 1
    calling.close()
    answered.close()


def test_who_has_the_certificate_of_another_run_is_refused(
    someone: Callable[..., Someone], foreign: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host, stranger = someone(COORDINATOR), someone(worker(0), credentials=foreign)
    with caplog.at_level(logging.WARNING), pytest.raises(PeerLost, match="cannot reach coordinator .*self-signed"):
        stranger.transport.connect(COORDINATOR, host.transport.address)
    assert still_answers(host, someone)
    assert "coordinator rejected a connection from 127.0.0.1: TLS: " in caplog.text


def test_a_party_with_the_certificate_of_another_one_is_refused(
    someone: Callable[..., Someone], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_contact, "AGAIN_SECONDS", ())
    host = someone(COORDINATOR)
    stolen = tmp_path / "credentials"
    stolen.mkdir()
    for name in ("job", "authority.pem"):
        (stolen / name).write_bytes((folder / name).read_bytes())
    (stolen / file_of(server(0))).write_bytes((folder / file_of(worker(1))).read_bytes())
    liar = someone(server(0), credentials=stolen)
    with pytest.raises(PeerLost, match="closed the connection before it had proved who it is"):
        liar.transport.connect(COORDINATOR, host.transport.address)
    assert still_answers(host, someone)
    friend = someone(worker(1))
    with pytest.raises(PeerLost, match="worker 1 answers there"):
        friend.transport.connect(server(0), liar.transport.address)


def still_answers(host: Someone, someone: Callable[..., Someone]) -> bool:
    friend = someone(worker(0))
    friend.transport.connect(COORDINATOR, host.transport.address)
    friend.say(COORDINATOR, 99)
    return host.heard.next() == (worker(0), Total(samples=99))


@pytest.mark.parametrize("raw", [greeting(), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff", bytes(5000)])
def test_whoever_speaks_no_tls_is_sent_away_and_nothing_of_it_is_read(
    someone: Callable[..., Someone], raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp_transport, "HANDSHAKE_SECONDS", 0.2)
    host = someone(COORDINATOR)
    sock = host.call(raw)
    with sock:
        said = b"".join(iter(lambda: receive(sock), b""))
    assert len(said) <= 7, "an alert at most, no word of who is here"
    assert host.transport._tls_listener is not None
    host.transport._tls_listener._seconds = 600.0  # a handshake of somebody who belongs here may take longer
    assert still_answers(host, someone)


def receive(sock: socket.socket) -> bytes:
    try:
        return sock.recv(4096)
    except ConnectionError:
        return b""


def test_whoever_shows_no_certificate_or_speaks_an_older_tls_is_refused(someone: Callable[..., Someone]) -> None:
    host = someone(COORDINATOR)
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = version
        with host.call() as sock, pytest.raises(OSError), context.wrap_socket(sock) as stream:
            stream.sendall(greeting())
            assert stream.recv(1) == b""
            raise ConnectionError
    assert still_answers(host, someone)


@pytest.mark.parametrize("whose", ["of the one who is called", "of the caller"])
def test_a_certificate_that_is_out_of_date_is_refused(
    someone: Callable[..., Someone],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    whose: str,
) -> None:
    run = CertificateAuthority()
    run.write(tmp_path / "good", PARTIES)
    monkeypatch.setattr(certificate_authority, "LIFETIME", datetime.timedelta(hours=-1))
    run.write(tmp_path / "old", PARTIES)
    called, calls = ("old", "good") if "called" in whose else ("good", "old")
    host, caller = someone(COORDINATOR, tmp_path / called), someone(worker(0), tmp_path / calls)
    if called == "old":
        with pytest.raises(PeerLost, match="certificate has expired"):
            caller.transport.connect(COORDINATOR, host.transport.address)
        return
    with caplog.at_level(logging.WARNING):
        try:
            caller.transport.connect(COORDINATOR, host.transport.address)
            caller.heard.losses.get(
                timeout=PATIENCE_SECONDS
            )  # in TLS 1.3 the caller hears of it after its own part is done
        except PeerLost:
            pass
        assert within(PATIENCE_SECONDS, lambda: "certificate has expired" in caplog.text)
    assert host.heard.delivered.empty()


def test_who_calls_and_says_nothing_costs_no_memory_of_tls(
    someone: Callable[..., Someone], monkeypatch: pytest.MonkeyPatch
) -> None:
    answered: list[socket.socket] = []
    answer = Tls.answer
    monkeypatch.setattr(Tls, "answer", lambda self, sock: answered.append(sock) or answer(self, sock))
    host = someone(COORDINATOR)
    silent = [host.call() for _ in range(5)]
    assert still_answers(host, someone)
    assert len(answered) == 1
    silent[0].sendall(b"x")
    assert within(PATIENCE_SECONDS, lambda: len(answered) == 2)
    for sock in silent:
        sock.close()


def test_half_open_handshakes_are_ended_and_do_not_keep_others_out(
    someone: Callable[..., Someone], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp_transport, "STRANGERS_MAX", 4)
    host = someone(COORDINATOR)
    silent = [host.call() for _ in range(20)]
    assert still_answers(host, someone)
    assert all(hung_up_on(sock) for sock in silent[:10])
    for sock in silent[10:]:
        sock.close()


@pytest.mark.parametrize("host", ["192.0.2.7", "2001:db8::1", "example.org"])
def test_nothing_listens_beyond_this_machine_without_tls(host: str) -> None:
    with pytest.raises(ConfigError, match=r"without TLS.*leave out --tls off.*leave out --bind.*ssh -L"):
        Someone(COORDINATOR, host=host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_an_address_that_says_nothing_to_others_is_refused(host: str, folder: Path) -> None:
    with pytest.raises(ConfigError, match="give the one address"):
        Someone(COORDINATOR, host=host, tls=Tls(folder, COORDINATOR))


def test_credentials_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="credentials of worker 3 in"):
        Tls(tmp_path, worker(3))
