"""Lines between agents and launchers: nonsense, late and long ones end the stream."""

from __future__ import annotations

import importlib.metadata
import json
import math
import socket
import sys
from pathlib import Path

import msgspec
import pytest

from paceline import __version__
from paceline.launch.remote import agent_messages as messages
from paceline.launch.remote.agent_messages import Event
from paceline.launch.remote.launcher import unlike
from paceline.launch.remote.message_stream import MessageStream, SocketStream
from paceline.live.protocol import frames

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")


@pytest.mark.parametrize(("deadline", "bytes_max"), [(0.0, 99), (math.inf, 5)])
def test_a_word_that_is_late_or_long_ends_the_stream(deadline: float, bytes_max: int) -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(b'{"word":')
    assert MessageStream(SocketStream(ours), Event).hear(20, deadline=deadline, bytes_max=bytes_max) is None
    theirs.close()


@pytest.mark.parametrize(
    "text", [b"nonsense\n", b'{"word":"shout"}\n', b'{"word":"said","party":1,"line":""}\n', b"[" * 9999 + b"\n"]
)
def test_nonsense_ends_the_stream(text: bytes) -> None:
    ours, theirs = socket.socketpair()
    lines: MessageStream[Event] = MessageStream(SocketStream(ours), Event)
    theirs.sendall(b'{"word":"over"}\n{"word":"beat"}\n' + text)
    assert lines.hear(1) == messages.RunOver()
    assert lines.hear(1) is None
    theirs.close()


TORCH = importlib.metadata.version("torch")


@pytest.mark.parametrize(
    ("paceline", "torch", "says"),
    [
        ("0.0.9", TORCH, [f"has Paceline 0.0.9, and {__version__} is here; install the same"]),
        (__version__, "1.0", [f"has torch 1.0, and {TORCH} is here; install the same"]),
        (__version__, TORCH.partition("+")[0] + "+elsewhere", []),
    ],
)
def test_a_host_with_other_versions_is_told_with_both_of_them(paceline: str, torch: str, says: list[str]) -> None:
    hello = messages.AgentHello(
        host="there", pid=1, python="3.11", paceline=paceline, torch=torch, protocol=frames.VERSION
    )
    assert list(unlike(hello)) == says


def test_a_host_of_another_protocol_or_byte_order_is_told_so() -> None:
    ours = messages.AgentHello(
        host="there",
        pid=1,
        python="3.8",
        paceline=__version__,
        torch=TORCH,
        protocol=frames.VERSION,
        byte_order=sys.byteorder,
    )
    assert list(unlike(ours)) == []
    big = msgspec.structs.replace(ours, protocol=frames.VERSION + 1, byte_order="mixed")
    assert list(unlike(big, "at h1")) == [
        f"speaks protocol version {frames.VERSION + 1}, and {frames.VERSION} is spoken at h1; install one Paceline",
        f"is mixed-endian, and numbers are {sys.byteorder}-endian at h1; use machines of one kind",
    ]


def test_a_hello_that_says_more_than_is_known_here_is_understood() -> None:
    """So that an agent of a later version is told that, and not that it talks nonsense."""
    said = {"word": "hello", "host": "x", "pid": 1, "python": "4", "paceline": "9", "torch": "3", "protocol": 9}
    told = msgspec.json.decode(json.dumps({**said, "colour": "blue"}), type=Event)
    assert isinstance(told, messages.AgentHello)
    assert "has Paceline 9" in next(unlike(told))
