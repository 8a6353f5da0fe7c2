"""The launcher's side of its agents, with the other side played by hand."""

from __future__ import annotations

import importlib.metadata
import queue
import socket
import time
from typing import Any, cast

import pytest

from paceline import __version__
from paceline import config as configuration
from paceline.job.crew import Ended
from paceline.job.seat import Seat
from paceline.launch import words
from paceline.launch.agents import RemoteCrew, RemoteHost, unlike
from paceline.launch.hosts import Host
from paceline.launch.local import LocalCrew
from paceline.launch.placement import Placement
from paceline.launch.words import Event, Lines, SocketStream

TORCH = importlib.metadata.version("torch")


class Nobody:
    """No evaluator here."""

    def __init__(self) -> None:
        self.ended: queue.SimpleQueue[Ended] = queue.SimpleQueue()


def test_of_a_host_that_is_gone_the_reason_is_asked_for_once_and_told_of_each_party() -> None:
    asked: list[str] = []

    def why() -> str:
        asked.append("why")
        return "no route"

    ours, theirs = socket.socketpair()
    host = RemoteHost("h", Lines(SocketStream(ours), Event), why_gone=why)
    placement = Placement(hosts=(Host(name="h"),), workers=(0, 0), slots=(0, 1), servers=(0,))
    crew = RemoteCrew([host], placement, cast(LocalCrew, Nobody()), scripts=True, said=lambda party, line: None)
    for party in ("worker 0", "worker 1", "server 0"):
        seat = Seat(party=party, workers=2, servers=1, coordinator="127.0.0.1:1", token="t")
        crew.start(configuration.build({"run": {"out": "runs/here"}}), seat)
    assert crew.busy()
    theirs.close()
    ends = [crew.ended.get(timeout=20) for _ in range(3)]
    assert [end.why for end in ends] == [f"{end.who} is lost: host h is gone (no route)" for end in ends]
    assert asked == ["why", "why"]  # for who waits for an answer, and for the parties
    host.close()


def test_a_host_of_which_something_is_heard_again_is_not_doubted_any_more() -> None:
    ours, theirs = socket.socketpair()
    lines: Lines[Event] = Lines(SocketStream(ours), Event)
    host = RemoteHost("h", lines)
    heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
    host.follow(heard.put)
    host.doubt()
    theirs.sendall(b'{"word":"over"}\n')
    assert heard.get(timeout=20) == words.Over()
    host._give_up()  # as after each beat
    lines.heard_at = time.monotonic() - 20  # silent, for another reason
    host._give_up()
    assert not _closed(theirs)
    host.doubt()
    host._give_up()
    assert _closed(theirs)
    theirs.close()


def _closed(sock: socket.socket) -> bool:
    sock.setblocking(False)
    while True:
        try:
            if not sock.recv(4096):
                return True
        except BlockingIOError:
            return False


@pytest.mark.parametrize(
    ("paceline", "torch", "says"),
    [
        ("0.0.9", TORCH, [f"has Paceline 0.0.9, and {__version__} is here; install the same"]),
        (__version__, "1.0", [f"has torch 1.0, and {TORCH} is here; install the same"]),
        (__version__, TORCH.partition("+")[0] + "+elsewhere", []),
    ],
)
def test_a_host_with_other_versions_is_told_with_both_of_them(paceline: str, torch: str, says: list[str]) -> None:
    hello = words.Hello(host="there", pid=1, python="3.11", paceline=paceline, torch=torch)
    assert list(unlike(hello)) == says
