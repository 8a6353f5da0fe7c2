"""An old worker meets a new server: it is refused in one line that has both versions, and harms nobody."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable

import pytest

from paceline.core.coordination.party import COORDINATOR, worker
from paceline.core.errors import OtherVersion
from paceline.live.protocol import frames
from paceline.live.protocol.transport import Envelope, Kind
from tests.launch.process_tree import within
from tests.live.bare_transport import Someone, greeting_of
from tests.live.fakes import PATIENCE_SECONDS
from tests.live.net.test_tcp_transport import still_answers
from tests.live.protocol.test_frames import bytes_of

THIS, OTHER = frames.VERSION, frames.VERSION + 1


def of_version(frame: bytes, version: int) -> bytes:
    """The same frame as a process of that version sends it."""
    return frame[:4] + bytes([version]) + frame[5:]


def received(sock: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionResetError):  # who refuses closes, with the rest of the frame unread
        while more := sock.recv(4096):
            found += more
    return found


@pytest.mark.parametrize("version", [THIS - 1, OTHER])
def test_a_caller_of_another_version_is_told_this_one_and_the_log_has_both(
    version: int, host: Someone, someone: Callable[..., Someone], caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING),
        host.call(
            of_version(bytes_of(Envelope(Kind.CONTROL, greeting_of("worker 0", "coordinator"))), version)
        ) as sock,
    ):
        notice = received(sock)
    with pytest.raises(frames.VersionMismatch, match=f"protocol version {THIS}, this side {version}: install one"):
        try:
            frames.VERSION = version  # as the caller has it
            frames.decode_prefix(notice, 0)
        finally:
            frames.VERSION = THIS
    logged = f"protocol version {version}, this side {THIS}: install one version of paceline on all hosts"
    assert within(PATIENCE_SECONDS, lambda: logged in caplog.text), "the line may come after the end of the stream"
    assert still_answers(host, someone)
    assert host.heard.losses.empty()


def test_who_calls_a_listener_of_another_version_says_so_at_once_and_calls_no_more(
    someone: Callable[..., Someone],
) -> None:
    calls = 0
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answers() -> None:
            nonlocal calls
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                with sock:
                    calls += 1
                    sock.recv(4096)
                    sock.sendall(of_version(frames.version_notice(), OTHER))

        thread = threading.Thread(target=answers, daemon=True)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        says = (
            f"worker 3 cannot reach coordinator at {address}: the other side speaks protocol version {OTHER}, "
            f"this side {THIS}: install one version of paceline on all hosts"
        )
        with pytest.raises(OtherVersion) as error:
            someone(worker(3)).transport.connect(COORDINATOR, address)
        assert str(error.value) == says
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10.0)
    assert calls == 1
