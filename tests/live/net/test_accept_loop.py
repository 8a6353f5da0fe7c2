"""Callers that have not said who they are: bounded, evicted in order, and never the business of the net thread."""

from __future__ import annotations

import contextlib
import errno
import itertools
import queue
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="`make` installs what a run's authority needs")

from paceline.core.coordination.control_messages import Total
from paceline.core.coordination.party import COORDINATOR, Party, server, worker
from paceline.live.net import accept_loop, tcp_transport
from paceline.live.net.accept_loop import FailureLimit, TlsListener
from paceline.live.protocol.transport import SHARED, TCP
from paceline.live.same_host import unix_socket
from paceline.live.same_host.shared_memory import Segments
from paceline.live.security.certificate_authority import CertificateAuthority
from paceline.live.security.tls import Tls, TlsStream
from tests.launch.process_tree import within
from tests.live.bare_transport import Someone, all_go
from tests.live.fakes import PATIENCE_SECONDS, happened, take
from tests.live.net.test_tcp_transport import hung_up_on

Make = Callable[..., "Open"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("run") / "credentials"
    CertificateAuthority().write(made, [COORDINATOR, server(0), worker(0), worker(1)])
    return made


class Open:
    """A listener, who came through it, and who was sent away."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.folder = folder
        self.came: queue.SimpleQueue[tuple[TlsStream, Party]] = queue.SimpleQueue()
        self.refused: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self.failures: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        tls = Tls(folder, COORDINATOR)
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.made: TlsListener[Party] = TlsListener(
            "handshakes of a test",
            listener,
            answer=tls.answer,
            identify=tls.party_of,
            done=lambda stream, who: self.came.put((stream, who)),
            refused=lambda address, why: self.refused.put((address, why)),
            failed=self.failures.put,
            **{"limit": 4, "seconds": 600.0, **more},
        )
        self.made.open()

    def stranger(self, source: str = "127.0.0.1", first: bytes = b"") -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS, (source, 0))
        sock.sendall(first)
        return sock

    def accepted(self, **more: Any) -> socket.socket:
        """Calls, and returns once it has been accepted, so that callers come in batches of one."""
        before = self.made._batch
        sock = self.stranger(**more)
        assert within(PATIENCE_SECONDS, lambda: self.made._batch > before)
        return sock

    def is_let_in(self, rank: int = 0) -> bool:
        with Tls(self.folder, worker(rank)).call(self.stranger(), COORDINATOR):
            stream, who = take(self.came)
            stream.close()
        return who == worker(rank)


@pytest.fixture
def opened(folder: Path) -> Iterator[Make]:
    made: list[Open] = []

    def make(**more: Any) -> Open:
        made.append(Open(folder, **more))
        return made[-1]

    yield make
    for one in made:
        one.made.close()
        assert one.failures.empty()


def close(*socks: socket.socket) -> None:
    for sock in socks:
        sock.close()


# ---- who is evicted ----------------------------------------------------------------------------------------------
def test_the_oldest_that_says_nothing_goes_before_one_that_has_begun(opened: Make) -> None:
    one = opened()
    begun = one.accepted(first=b"\x16")
    silent = [one.accepted() for _ in range(8)]
    assert one.is_let_in()
    assert all(hung_up_on(sock) for sock in silent[:5])
    begun.settimeout(0.05)
    with pytest.raises(TimeoutError):
        begun.recv(1)
    close(begun, *silent)


def test_an_address_that_calls_a_lot_evicts_its_own_callers_only(opened: Make) -> None:
    one = opened()
    other = one.stranger("127.0.0.2")
    crowd = [one.stranger("127.0.0.3") for _ in range(10)]
    assert one.is_let_in()
    assert {take(one.refused)[0] for _ in range(7)} == {"127.0.0.3"}
    other.settimeout(0.05)
    with pytest.raises(TimeoutError):
        other.recv(1)
    close(other, *crowd)


def test_who_does_not_finish_in_time_is_sent_away(opened: Make) -> None:
    one = opened(seconds=0.05)
    late = [one.stranger(), one.stranger(first=b"\x16\x03")]
    assert all(hung_up_on(sock) for sock in late)
    assert take(one.refused) == ("127.0.0.1", "no handshake within 0.05 s")
    one.made._seconds = 600.0  # a handshake of somebody who belongs here may take longer on a busy machine
    assert one.is_let_in()
    close(*late)


def test_a_hello_without_more_is_answered_and_sent_away_like_any_other(opened: Make) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    out = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    one, hello = opened(), out.read()
    strangers = []
    for _ in range(8):
        strangers.append(one.stranger(first=hello))
        assert strangers[-1].recv(1) == b"\x16"
    assert one.is_let_in()
    close(*strangers)


# ---- every way to a party ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("first", [b"", b"\x16"])
@pytest.mark.parametrize("way", ["tcp", "tls", "unix"])
def test_a_crowd_that_stays_keeps_nobody_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch, way: str, first: bytes
) -> None:
    """None of them is ever late, so whoever goes was evicted."""
    for name in ("GREETING_SECONDS", "HANDSHAKE_SECONDS"):
        monkeypatch.setattr(tcp_transport, name, 600.0)
    monkeypatch.setattr(tcp_transport, "STRANGERS_MAX", 16)
    parties = []
    for who in (COORDINATOR, worker(0)):
        tls = Tls(folder, who) if way == "tls" else None
        parties.append(Someone(who, tls=tls, segments=Segments() if way == "unix" else None))
    host, guest = parties
    crowd = []
    for _ in range(100):
        crowd.append(called_locally(host) if way == "unix" else host.call())
        with contextlib.suppress(ConnectionError, BrokenPipeError):
            crowd[-1].sendall(first)
    guest.transport.connect(COORDINATOR, host.transport.address)
    guest.say(COORDINATOR, 7)
    assert host.heard.next() == (worker(0), Total(samples=7))
    assert guest.transport.way_to(COORDINATOR) == (SHARED if way == "unix" else TCP)
    assert all(hung_up_on(sock) for sock in crowd[:80])
    close(*crowd)
    all_go(parties)


def called_locally(host: Someone) -> socket.socket:
    return unix_socket.connect(unix_socket.name_in(host.transport.address), PATIENCE_SECONDS)


# ---- the net thread ----------------------------------------------------------------------------------------------
def test_a_handshake_that_takes_long_keeps_no_message_waiting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, begun, free, slowly = Tls.answer, threading.Event(), threading.Event(), threading.Event()

    def slow(self: Tls, sock: socket.socket) -> TlsStream:
        if slowly.is_set():
            begun.set()
            assert happened(free)
        return answer(self, sock)

    monkeypatch.setattr(Tls, "answer", slow)
    host, guest = (Someone(who, tls=Tls(folder, who)) for who in (COORDINATOR, worker(0)))
    guest.transport.connect(COORDINATOR, host.transport.address)
    guest.say(COORDINATOR, 1)
    host.heard.next()
    slowly.set()
    with host.call(b"\x16"):
        assert happened(begun)
        for n in range(3):
            guest.say(COORDINATOR, n)
            assert host.heard.next()[1].samples == n
            host.say(worker(0), n)
            assert guest.heard.next()[1].samples == n
        free.set()
    all_go([host, guest])


# ---- descriptors -------------------------------------------------------------------------------------------------
def test_a_listener_without_descriptors_is_left_alone_for_a_while(
    opened: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, tries, over = socket.socket.accept, itertools.count(), threading.Event()

    def exhausted(sock: socket.socket) -> Any:
        if not over.is_set():
            next(tries)
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(sock)

    one = opened()
    there = [one.stranger() for _ in range(2)]
    assert within(PATIENCE_SECONDS, lambda: len(one.made._callers) == 2)
    monkeypatch.setattr(accept_loop, "RETRY_SECONDS", 600.0)
    monkeypatch.setattr(socket.socket, "accept", exhausted)
    waits = one.stranger()
    assert take(one.refused) == ("127.0.0.1", "no descriptor is left"), "which gives one back"
    for n in range(20):  # turns of its loop, which would find the listener readable
        turned = threading.Event()
        one.made._loop.call_soon(turned.set)
        assert happened(turned), n
    assert next(tries) == 1
    over.set()
    one.made._loop.call_soon(one.made._listen)
    assert one.is_let_in()
    close(waits, *there)


OUT_OF_DESCRIPTORS = """
import os, resource, socket, sys, threading
from paceline.live.net.accept_loop import accept
listener = socket.create_server(("127.0.0.1", 0), backlog=64)
listener.setblocking(False)
callers = [socket.create_connection(listener.getsockname()) for _ in range(8)]
taken = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (taken + 2, taken + 2))
some, full = accept(listener)
print(len(some) < 8, full)
while full:
    some[0].close()
    more, full = accept(listener)
    some = some[1:] + more
print(full)
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors as Linux shows them")
def test_the_system_says_so_when_no_descriptor_is_left_and_one_that_is_given_back_is_used() -> None:
    said = subprocess.run(
        [sys.executable, "-c", OUT_OF_DESCRIPTORS],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (said.stdout.split(), said.returncode) == (["True", "True", "False"], 0), said.stderr


# ---- handshakes that come to nothing -----------------------------------------------------------------------------
def test_failures_of_an_address_are_limited_and_successes_are_not() -> None:
    now = 0.0
    limit = FailureLimit(lambda: now)
    for _ in range(3 * accept_loop.FAILURES_FREE):
        assert limit.take("10.0.0.7")
        limit.put_back("10.0.0.7")
    assert sum(limit.take("10.0.0.7") for _ in range(3 * accept_loop.FAILURES_FREE)) == accept_loop.FAILURES_FREE
    assert limit.take("10.0.0.8"), "another address"
    now = 1.0
    assert sum(limit.take("10.0.0.7") for _ in range(1000)) == accept_loop.FAILURES_PER_SECOND


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("127.0.0.1", "127.0.0.1", False),
        ("this host", "this host", False),
    ],
)
def test_an_ipv6_network_counts_as_one_and_this_machine_is_not_limited(one: str, other: str, alike: bool) -> None:
    limit = FailureLimit(lambda: 0.0)
    for _ in range(accept_loop.FAILURES_FREE):
        limit.take(one)
    assert limit.take(other) == (not alike)


def test_what_is_remembered_of_addresses_is_bounded() -> None:
    limit = FailureLimit(lambda: 0.0)
    for n in range(3 * accept_loop.ADDRESSES_MAX):
        limit.take(f"10.0.{n // 256}.{n % 256}")
    assert len(limit._buckets) == accept_loop.ADDRESSES_MAX


def test_who_comes_from_an_address_with_many_failures_waits_and_is_served(
    opened: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accept_loop, "_network", lambda address: address)
    monkeypatch.setattr(accept_loop, "FAILURES_FREE", 1)
    monkeypatch.setattr(accept_loop, "FAILURES_PER_SECOND", 5.0)
    monkeypatch.setattr(accept_loop, "RETRY_SECONDS", 0.02)
    one = opened()
    for _ in range(2):
        with one.stranger(first=b"no TLS"):
            take(one.refused)
    assert one.is_let_in()
