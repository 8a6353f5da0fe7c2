"""The page over real sockets: one that reads nothing of what it asked for keeps nobody waiting."""

from __future__ import annotations

import http.client
import os
import queue
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="`make` installs what the page needs")

from paceline.observe.watch.serving.server import serve

SLOW = 20
PATIENCE_SECONDS = 60.0


def got(page: http.client.HTTPConnection, path: str, headers: Any = None) -> http.client.HTTPResponse:
    page.request("GET", path, headers=headers or {})
    answer = page.getresponse()
    answer.read()
    return answer


def test_a_browser_that_reads_nothing_does_not_keep_others_from_the_page(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").write_text("")
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    owned, owner = os.pipe()
    with os.fdopen(owned, "rb", buffering=0) as pipe:
        thread = threading.Thread(target=serve, args=(tmp_path, dict), kwargs={"owner": pipe, "ready": said.put})
        thread.start()
        address, _, token = said.get(timeout=PATIENCE_SECONDS).removeprefix("http://").partition("/?token=")
        host, port = address.split(":")
        page = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_SECONDS)
        cookie = {"Cookie": got(page, f"/?token={token}").headers["Set-Cookie"].partition(";")[0]}
        ask = f"GET /watch.js HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie['Cookie']}\r\n\r\n".encode()
        slow = []
        for _ in range(SLOW):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect((host, int(port)))
            sock.sendall(ask * 10)
            slow.append(sock)
        assert {got(page, path, cookie).status for path in ("/", "/about", "/state", "/watch.js")} == {200}
        page.close()
        for sock in slow:
            sock.close()
        os.close(owner)
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
