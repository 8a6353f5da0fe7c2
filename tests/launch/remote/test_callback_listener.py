"""The launcher's listener beside callers that say nothing, and agents that are sent away from it."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="`make` installs what an authority needs")

from paceline.core.errors import PacelineError
from paceline.launch.remote import callback_listener as doors
from paceline.launch.remote import protocol
from paceline.launch.remote.agent_handshake import HELLO_BYTES_MAX, Key, admit, introduce
from paceline.launch.remote.callback_listener import CallbackListener, SentAway, call, enter
from paceline.launch.remote.protocol import Event, MessageStream, Request, SocketStream
from tests.live.fakes import in_background
from tests.live.net.test_tcp_transport import hung_up_on


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CallbackListener]:
    """One at which nobody is ever late, so that all who are sent away were evicted."""
    monkeypatch.setattr(doors, "HANDSHAKE_SECONDS", 600.0)
    monkeypatch.setattr(doors, "CALLERS_MAX", 4)
    monkeypatch.setattr(doors, "STRANGERS_MAX", 2)
    monkeypatch.setattr(doors, "AGAIN_SECONDS", 0.01)
    door = CallbackListener("127.0.0.1")
    door.write_ticket(tmp_path / "ticket")
    yield door
    door.close()


@pytest.fixture
def ticket(door: CallbackListener, tmp_path: Path) -> Path:
    return tmp_path / "ticket"


def hello() -> protocol.AgentHello:
    return protocol.AgentHello(host="x", pid=1, python="3", paceline="0", torch="2")


def is_let_in(door: CallbackListener, ticket: Path) -> bool:
    """Whoever has the ticket is let in, and what it says from then on is heard."""
    lines, _ = enter(ticket, hello)
    caller = door.caller()
    assert caller is not None
    caller[0].say(protocol.End(seconds=1.0))
    answer = lines.hear(20)
    protocol.hang_up(lines)
    protocol.hang_up(caller[0])
    return answer == protocol.End(seconds=1.0)


@pytest.mark.parametrize("first", [b"", b"\x16", b'{"word":"hello"}\n'])
def test_those_who_say_nothing_are_evicted_oldest_first_and_keep_no_agent_out(
    door: CallbackListener, ticket: Path, first: bytes
) -> None:
    told = json.loads(door.ticket)
    idle = []
    for _ in range(12):
        idle.append(socket.create_connection((told["host"], told["port"]), timeout=20))
        with contextlib.suppress(OSError):
            idle[-1].sendall(first)
    assert is_let_in(door, ticket)
    assert all(hung_up_on(sock) for sock in idle[:8])
    for sock in idle:
        sock.close()


def test_those_whose_handshake_is_finished_are_evicted_oldest_first_too(door: CallbackListener, ticket: Path) -> None:
    silent = [call(ticket.read_text())[0] for _ in range(6)]
    assert is_let_in(door, ticket)
    assert [stream.read(20) for stream in silent[:4]] == [b""] * 4
    for stream in silent:
        stream.free()


def test_an_agent_that_is_sent_away_before_it_was_let_in_calls_again(
    door: CallbackListener, ticket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, calls = doors.call, itertools.count()

    def busy(text: str) -> Any:
        n = next(calls)
        if n == 0:
            raise SentAway("reset during its handshake")
        stream, key, address = call(text)
        if n == 1:  # as one that is evicted between its hello and the look at it
            stream.close()
        return stream, key, address

    monkeypatch.setattr(doors, "call", busy)
    assert is_let_in(door, ticket)
    assert next(calls) == 3


def test_an_agent_gives_up_after_some_time_and_says_why(
    door: CallbackListener, ticket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "introduce", lambda *_: False)
    monkeypatch.setattr(doors, "CALL_SECONDS", 0.3)
    with pytest.raises(
        PacelineError, match=r"the launcher at 127.0.0.1:\d+ closed the connection before it had let this process in"
    ):
        enter(ticket, hello)


# ---- proofs ------------------------------------------------------------------------------------------------------
class Recorded(SocketStream):
    """A stream that keeps what is written to it."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.said = b""

    def write(self, data: bytes) -> None:
        self.said += data
        super().write(data)


def meet(agents: Key, launchers: Key) -> tuple[bool | str, protocol.AgentHello | None, bytes]:
    """What an agent and a launcher with these keys find out about one another, and all that was said."""
    ours, theirs = map(Recorded, socket.socketpair())
    found: list[protocol.AgentHello | None] = []

    def listen() -> None:
        found.append(admit(MessageStream(theirs, Event), launchers, time.monotonic() + 20))
        theirs.free()

    finished = in_background(listen)
    lines: MessageStream[Request] = MessageStream(ours, Request)
    try:
        trusted: bool | str = introduce(lines, agents, hello, 20)
    except PacelineError as error:
        trusted = str(error)
        ours.free()
    finished()
    ours.free()
    return trusted, found[0], ours.said + theirs.said


def test_agent_and_launcher_prove_to_one_another_that_they_know_the_token_and_say_it_to_nobody() -> None:
    key = Key("the token", b"a certificate")
    trusted, found, said = meet(key, key)
    assert trusted is True
    assert found is not None
    assert found.host == "x"
    assert b"the token" not in said
    assert base64.b64encode(b"the token") not in said


@pytest.mark.parametrize("launchers", [Key("another", b"a certificate"), Key("the token", b"another certificate")])
def test_an_agent_says_nothing_of_itself_to_a_launcher_that_does_not_know_its_token(launchers: Key) -> None:
    """Nor where somebody between the two, with a certificate of its own, passes everything on."""
    trusted, found, said = meet(Key("the token", b"a certificate"), launchers)
    assert "does not know the token of this process's ticket" in str(trusted)
    assert found is None
    assert b"hello" not in said


def test_what_an_agent_has_said_is_no_use_to_whoever_says_it_again() -> None:
    key = Key("the token", b"a certificate")
    _, _, said = meet(key, key)
    again = b"".join(line + b"\n" for line in said.splitlines() if b"challenge" not in line)
    ours, theirs = socket.socketpair()
    ours.sendall(again)
    assert b"knock" in again
    assert b"hello" in again
    assert admit(MessageStream(SocketStream(theirs), Event), key, time.monotonic() + 20) is None
    ours.close()
    theirs.close()


def test_a_squatter_at_the_launchers_address_hears_a_hello_of_tls_and_nothing_else(
    door: CallbackListener, ticket: Path
) -> None:
    told = json.loads(door.ticket)
    door.close()
    with socket.create_server((told["host"], told["port"])) as listener:

        def listen() -> bytes:
            sock, _ = listener.accept()
            with sock:
                heard = sock.recv(1 << 16)
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                with contextlib.suppress(ConnectionError):
                    while more := sock.recv(1 << 16):
                        heard += more
            return heard

        finished = in_background(listen)
        with pytest.raises(PacelineError, match=f"the launcher at 127.0.0.1:{told['port']} cannot be reached"):
            enter(ticket, hello)
        heard = finished()
    assert heard[:1] == b"\x16", "a handshake of TLS"
    assert told["token"].encode() not in heard
    assert b"word" not in heard


def test_one_that_was_let_in_is_evicted_no_more(door: CallbackListener, ticket: Path) -> None:
    lines: MessageStream[Request]
    lines, _ = enter(ticket, hello)
    caller = door.caller()
    assert caller is not None
    late = [call(ticket.read_text())[0] for _ in range(6)]
    caller[0].say(protocol.End(seconds=2.0))
    assert lines.hear(20) == protocol.End(seconds=2.0)
    for stream in late:
        stream.free()
    protocol.hang_up(lines)
    protocol.hang_up(caller[0])


def test_running_out_of_descriptors_does_not_end_it(
    door: CallbackListener, ticket: Path, failures_to_accept: list[OSError]
) -> None:
    assert is_let_in(door, ticket)
    assert failures_to_accept == []


def test_a_hello_that_is_too_long_is_not_heard_out(door: CallbackListener, ticket: Path) -> None:
    stream, _, _ = call(ticket.read_text())
    lines: MessageStream[Event] = MessageStream(stream, Event)
    with contextlib.suppress(OSError):
        stream.write(b"x" * (HELLO_BYTES_MAX + 70_000))
    assert lines.hear(20) is None
