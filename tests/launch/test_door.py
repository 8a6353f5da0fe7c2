"""The launcher's listener beside callers that say nothing, and agents that are sent away from it."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="`make` installs what an authority needs")

from paceline.core.errors import PacelineError
from paceline.launch import door as doors
from paceline.launch import words
from paceline.launch.door import Door, SentAway, dial, enter
from paceline.launch.words import Event, Lines, Request
from tests.live.test_tcp import hung_up_on


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    """One at which nobody is ever late, so that all who are sent away were evicted."""
    monkeypatch.setattr(doors, "HANDSHAKE_SECONDS", 600.0)
    monkeypatch.setattr(doors, "CALLERS_MAX", 4)
    monkeypatch.setattr(doors, "STRANGERS_MAX", 2)
    monkeypatch.setattr(doors, "AGAIN_SECONDS", 0.01)
    door = Door("127.0.0.1")
    door.write_ticket(tmp_path / "ticket")
    yield door
    door.close()


@pytest.fixture
def ticket(door: Door, tmp_path: Path) -> Path:
    return tmp_path / "ticket"


def hello(token: str = "") -> words.Hello:
    return words.Hello(host="x", pid=1, python="3", paceline="0", torch="2", token=token)


def is_let_in(door: Door, ticket: Path) -> bool:
    """Whoever has the ticket is let in, and what it says from then on is heard."""
    lines, _ = enter(ticket, hello)
    caller = door.caller()
    assert caller is not None
    caller[0].say(words.End(seconds=1.0))
    answer = lines.hear(20)
    words.hang_up(lines)
    words.hang_up(caller[0])
    return answer == words.End(seconds=1.0)


@pytest.mark.parametrize("first", [b"", b"\x16", b'{"word":"hello"}\n'])
def test_those_who_say_nothing_are_evicted_oldest_first_and_keep_no_agent_out(
    door: Door, ticket: Path, first: bytes
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


def test_those_whose_handshake_is_finished_are_evicted_oldest_first_too(door: Door, ticket: Path) -> None:
    silent = [dial(ticket)[0] for _ in range(6)]
    assert is_let_in(door, ticket)
    assert [stream.read(20) for stream in silent[:4]] == [b""] * 4
    for stream in silent:
        stream.free()


def test_an_agent_that_is_sent_away_before_it_was_let_in_calls_again(
    door: Door, ticket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, calls = doors.call, itertools.count()

    def busy(text: str) -> Any:
        n = next(calls)
        if n == 0:
            raise SentAway("reset during its handshake")
        stream, token, address = call(text)
        if n == 1:  # as one that is evicted between its hello and the look at it
            stream.close()
        return stream, token, address

    monkeypatch.setattr(doors, "call", busy)
    assert is_let_in(door, ticket)
    assert next(calls) == 3


def test_an_agent_gives_up_after_some_time_and_says_why(
    door: Door, ticket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = json.loads(door.ticket)
    ticket.write_text(json.dumps({**told, "token": "of another launch"}))
    monkeypatch.setattr(doors, "CALL_SECONDS", 0.3)
    with pytest.raises(PacelineError, match="the launcher closed the connection before it had let this process in"):
        enter(ticket, hello)


def test_one_that_was_let_in_is_evicted_no_more(door: Door, ticket: Path) -> None:
    lines: Lines[Request]
    lines, _ = enter(ticket, hello)
    caller = door.caller()
    assert caller is not None
    late = [dial(ticket)[0] for _ in range(6)]
    caller[0].say(words.End(seconds=2.0))
    assert lines.hear(20) == words.End(seconds=2.0)
    for stream in late:
        stream.free()
    words.hang_up(lines)
    words.hang_up(caller[0])


def test_running_out_of_descriptors_does_not_end_it(door: Door, ticket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accept, failures = socket.socket.accept, [OSError(errno.EMFILE, "Too many open files")] * 2

    def exhausted(sock: socket.socket) -> Any:
        if failures:
            raise failures.pop()
        return accept(sock)

    monkeypatch.setattr(socket.socket, "accept", exhausted)
    assert is_let_in(door, ticket)
    assert failures == []


def test_a_hello_that_is_too_long_is_not_heard_out(door: Door, ticket: Path) -> None:
    stream, _, _ = dial(ticket)
    lines: Lines[Event] = Lines(stream, Event)
    with contextlib.suppress(OSError):
        stream.write(b"x" * (doors.HELLO_BYTES_MAX + 70_000))
    assert lines.hear(20) is None
