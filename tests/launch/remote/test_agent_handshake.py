"""Agent and launcher prove that they know the token, and tell it to nobody."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import time
from pathlib import Path

import pytest

from paceline.core.errors import PacelineError
from paceline.launch.remote import agent_messages as messages
from paceline.launch.remote.agent_handshake import Key, admit, introduce
from paceline.launch.remote.agent_messages import Event, Request
from paceline.launch.remote.callback_listener import CallbackListener, enter
from paceline.launch.remote.message_stream import MessageStream, SocketStream
from tests.launch.remote.hellos import hello
from tests.live.fakes import in_background


class Recorded(SocketStream):
    """A stream that keeps what is written to it."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.said = b""

    def write(self, data: bytes) -> None:
        self.said += data
        super().write(data)


def meet(agents: Key, launchers: Key) -> tuple[bool | str, messages.AgentHello | None, bytes]:
    """What an agent and a launcher with these keys find out about one another, and all that was said."""
    ours, theirs = map(Recorded, socket.socketpair())
    found: list[messages.AgentHello | None] = []

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
