"""Those who keep connections to the page busy: how many there may be, and for how long."""

from __future__ import annotations

import contextlib
import errno
import http.client
import itertools
import os
import queue
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="`make` installs what the page needs")

from paceline.observe.watch.serving import connections
from paceline.observe.watch.serving.server import serve

PATIENCE_SECONDS = 60.0


class Page:
    """A page of a run that has only begun, on a thread of this process."""

    def __init__(self, folder: Path) -> None:
        self.ended = False
        (folder / "trace.jsonl").write_text("")
        said: queue.SimpleQueue[str] = queue.SimpleQueue()
        owned, self._owner = os.pipe()
        self._pipe = os.fdopen(owned, "rb", buffering=0)
        self.thread = threading.Thread(
            target=serve, args=(folder, dict), kwargs={"owner": self._pipe, "ready": said.put}
        )
        self.thread.start()
        self.address, _, self.token = said.get(timeout=PATIENCE_SECONDS).removeprefix("http://").partition("/?token=")

    def call(self, first: bytes = b"") -> socket.socket:
        host, port = self.address.split(":")
        sock = socket.socket()
        sock.settimeout(PATIENCE_SECONDS)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect((host, int(port)))
        sock.sendall(first)
        return sock

    def request(self, path: str, *more: str) -> bytes:
        lines = [f"GET {path} HTTP/1.1", f"Host: {self.address}", *more]
        return "\r\n".join([*lines, "", ""]).encode()

    def answers(self) -> bool:
        page = http.client.HTTPConnection(self.address, timeout=PATIENCE_SECONDS)
        page.request("GET", f"/?token={self.token}")
        status = page.getresponse().status
        page.close()
        return status == 303

    def end(self) -> None:
        if self.ended:
            return
        self.ended = True
        os.close(self._owner)
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive()
        self._pipe.close()


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    monkeypatch.setattr("paceline.observe.watch.serving.server.LINGER_S", 0.0)
    page = Page(tmp_path)
    yield page
    page.end()


def ended(sock: socket.socket) -> bool:
    """Has the page closed it? What it said before is read."""
    try:
        while sock.recv(1 << 16):
            pass
    except ConnectionError:
        return True
    return True


def test_those_who_say_nothing_are_evicted_oldest_first(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 4)
    silent = [page.call(b"G" if n % 2 else b"") for n in range(12)]
    assert page.answers()
    assert all(ended(sock) for sock in silent[:8])
    for sock in silent:
        sock.close()


def test_hundreds_of_connections_do_not_keep_a_browser_out(page: Page) -> None:
    crowd = [page.call() for _ in range(200)]
    assert page.answers()
    assert ended(crowd[0])
    for sock in crowd:
        sock.close()


def test_a_browser_that_waits_between_requests_is_evicted_before_one_that_is_served(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 2)
    asked = page.request("/watch.js", f"Cookie: paceline-watch-{page.address.split(':')[1]}={page.token}")
    served = page.call(asked * 400)  # more than the kernel keeps for one who does not read
    assert served.recv(12) == b"HTTP/1.1 200"
    waits = [page.call() for _ in range(3)]
    assert page.answers()
    assert ended(waits[0])
    assert served.recv(1), "not cut off"
    for sock in (served, *waits):
        sock.close()


@pytest.mark.parametrize("first", [b"", b"G", b"GET / HTTP/1.1\r\nHost: x\r\nA"])
def test_who_does_not_finish_its_request_is_cut_off(page: Page, monkeypatch: pytest.MonkeyPatch, first: bytes) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.05)
    with page.call(first) as sock:
        assert ended(sock)
    monkeypatch.setattr(connections, "REQUEST_SECONDS", PATIENCE_SECONDS)  # the next may be slow on a busy machine
    assert page.answers()


def test_who_does_not_take_its_answers_is_cut_off(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.2)
    asked = page.request("/watch.js", f"Cookie: paceline-watch-{page.address.split(':')[1]}={page.token}")
    with page.call() as sock, pytest.raises(ConnectionError):
        for _ in range(100_000):
            sock.sendall(asked * 100)  # until nobody reads them any more, and then until it is closed
    monkeypatch.setattr(connections, "REQUEST_SECONDS", PATIENCE_SECONDS)
    assert page.answers()


@pytest.mark.parametrize("head", [b"GET /" + b"a" * (1 << 20), b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * (1 << 18)])
def test_a_request_that_is_too_long_is_refused(page: Page, head: bytes) -> None:
    with page.call() as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(head)
        assert ended(sock)
    assert page.answers()


def test_there_are_no_streams_without_an_end(page: Page) -> None:
    upgrade = (
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Key: " + "x" * 24,
        "Sec-WebSocket-Version: 13",
    )
    with page.call(page.request(f"/?token={page.token}", *upgrade)) as sock:
        assert sock.recv(12) == b"HTTP/1.1 303"


def test_without_descriptors_one_is_given_back_and_the_listener_is_left_alone_for_a_while(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = itertools.count()

    def exhausted(_: socket.socket) -> Any:
        next(tries)
        raise OSError(errno.EMFILE, "Too many open files")

    idle = page.call()
    kept = http.client.HTTPConnection(page.address, timeout=PATIENCE_SECONDS)
    assert asked(kept) == 403
    monkeypatch.setattr(connections, "RETRY_SECONDS", 600.0)
    monkeypatch.setattr(socket.socket, "accept", exhausted)
    waits = page.call()
    assert ended(idle)
    for _ in range(20):  # turns of its loop, which would find the listener readable
        assert asked(kept) == 403
    assert next(tries) == 1
    for one in (idle, waits, kept):
        one.close()


def asked(page: http.client.HTTPConnection) -> int:
    page.request("GET", "/")
    answer = page.getresponse()
    answer.read()
    return answer.status


def test_when_there_are_descriptors_again_callers_are_let_in(page: Page, failures_to_accept: list[OSError]) -> None:
    assert page.answers()
    assert failures_to_accept == []


def test_the_page_ends_though_somebody_does_not_take_its_answer(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.observe.watch.serving.server.END_S", 0)
    cookie = f"Cookie: paceline-watch-{page.address.split(':')[1]}={page.token}"
    with page.call(page.request("/watch.js", cookie) * 400) as slow:
        assert slow.recv(12) == b"HTTP/1.1 200"
        page.end()
