"""The launcher's listener beside callers that say nothing, and agents that are sent away from it."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.core.errors import PacelineError
from paceline.launch.remote import agent_messages as messages
from paceline.launch.remote import callback_listener as doors
from paceline.launch.remote import message_stream
from paceline.launch.remote.agent_handshake import HELLO_BYTES_MAX
from paceline.launch.remote.agent_messages import Event, Request
from paceline.launch.remote.callback_listener import CallbackListener, SentAway, call, enter
from paceline.launch.remote.message_stream import MessageStream
from tests.launch.remote.hellos import hello
from tests.live.net.test_tcp_transport import hung_up_on

pytest.importorskip("cryptography", reason="`make` installs what an authority needs")


def is_let_in(door: CallbackListener, ticket: Path) -> bool:
    """Whoever has the ticket is let in, and what it says from then on is heard."""
    lines, _ = enter(ticket, hello)
    caller = door.caller()
    assert caller is not None
    caller[0].say(messages.End(seconds=1.0))
    answer = lines.hear(20)
    message_stream.hang_up(lines)
    message_stream.hang_up(caller[0])
    return answer == messages.End(seconds=1.0)


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
    now = 0.0

    def sent_away(*_: object) -> bool:
        nonlocal now
        now += 25.0
        return False

    monkeypatch.setattr(doors, "introduce", sent_away)
    monkeypatch.setattr(doors, "time", SimpleNamespace(monotonic=lambda: now))
    with pytest.raises(
        PacelineError, match=r"the launcher at 127.0.0.1:\d+ closed the connection before it had let this process in"
    ):
        enter(ticket, hello)
    assert now == 75.0, "the third time was beyond 60 s"


def test_one_that_was_let_in_is_evicted_no_more(door: CallbackListener, ticket: Path) -> None:
    lines: MessageStream[Request]
    lines, _ = enter(ticket, hello)
    caller = door.caller()
    assert caller is not None
    late = [call(ticket.read_text())[0] for _ in range(6)]
    caller[0].say(messages.End(seconds=2.0))
    assert lines.hear(20) == messages.End(seconds=2.0)
    for stream in late:
        stream.free()
    message_stream.hang_up(lines)
    message_stream.hang_up(caller[0])


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
