"""Launchers, agents, the fork server and benchmarks talk in one form: a typed message is a line."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.bench.subprocess_job import JobFailed, Told
from paceline.launch.external.detect import LeadRun
from paceline.launch.local.fork_messages import ForkAnswer, ForkEnded, ForkRequest
from paceline.launch.local.line_messages import LaunchMessage, LineDecoder, encode
from paceline.launch.remote.agent_messages import Event, Knock, Request, StartProcess

EVERY = ForkRequest | ForkAnswer


@pytest.mark.parametrize(
    ("message", "types"),
    [
        (Knock(nonce=b"\x00\xff"), Event),
        (StartProcess(spec="{}", keys={"job": "k"}), Request),
        (ForkEnded(party="server 0", pid=7, code=-9), ForkAnswer),
        (Told(value={"seconds": [0.5, 1]}), Told | JobFailed),
        (JobFailed(why="no memory"), Told | JobFailed),
    ],
)
def test_every_conversation_has_the_same_form(message: LaunchMessage, types: Any) -> None:
    line = encode(message)
    assert line.isascii()
    assert line.count(b"\n") == 1
    assert line.startswith(b'{"word":')
    decoder: LineDecoder[Any] = LineDecoder(types)
    decoder.feed(line)
    assert decoder.take() == message
    assert LeadRun.__struct_config__.tag_field == "word"


@pytest.mark.parametrize(
    "line", [b"nonsense", b"{}", b'{"word":"signal","pid":"1","number":9}', b'{"word":"beat"}', b"[" * 100_000, b"\xff"]
)
def test_what_is_no_message_is_refused(line: bytes) -> None:
    decoder: LineDecoder[Any] = LineDecoder(EVERY)
    decoder.feed(line + b"\n")
    with pytest.raises(ValueError, match="."):
        decoder.take()
