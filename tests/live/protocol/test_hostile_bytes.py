"""Whatever bytes come, the decoder refuses them in one way, or they are a message within the limits."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core.coordination.control_messages import EvaluationReport, Hello, Rate, Ready, Roster
from paceline.core.errors import ProtocolError
from paceline.core.paramserver.gated_server import Push
from paceline.core.vector import Memory
from paceline.live.protocol import frames
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.fakes import PROGRESS, NumpyMemory, vector

BODY_BYTES_MAX = 1 << 20
MEMORY: Memory = NumpyMemory()
FRAMES = [
    frames.encode(Envelope(kind, message), MEMORY)[0].tobytes()
    for kind, message in (
        (Kind.CALL, Push(g=vector(1, 2, 3), clock=1, samples=1)),
        (Kind.CONTROL, Hello(address="127.0.0.1:1", pid=1, host="here", device="cpu")),
        (Kind.CONTROL, Roster(addresses={"worker 0": "a"}, hosts={"worker 0": "b"})),
        (Kind.CONTROL, PROGRESS),
    )
]
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.sampled_from([0, -1, 2**31, 2**61, 2**63, 2**64 - 1]) | st.floats()
NAMES = st.sampled_from(["clocked.Push", "control.Hello", "control.Progress", "mean.Part", "packing.Packed", "x.Y"])
VALUES: Any = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=8) | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=20,
)
HEADERS = st.lists(VALUES, max_size=7) | st.tuples(NAMES, st.lists(NUMBERS, max_size=3), st.lists(VALUES, max_size=6))


def decoded(frame: bytes) -> frames.Header | None:
    """What a receiver makes of it; None when it refuses, the one way in which it may."""
    try:
        prefix = frames.decode_prefix(frame[: frames.PREFIX.size], BODY_BYTES_MAX)
        assert prefix.header_bytes <= frames.HEADER_BYTES_MAX
        assert prefix.body_bytes <= BODY_BYTES_MAX
        return frames.decode_header(frame[frames.PREFIX.size :][: prefix.header_bytes], prefix.body_bytes)
    except ProtocolError:
        return None


def within_limits(header: frames.Header) -> bool:
    """Nobody takes memory for more than the body that was announced, but for what is lent or encoded."""
    sent = header.lengths if not (any(header.places) or any(header.forms)) else ()
    return min(header.lengths, default=0) >= 0 and sum(sent) * frames.ITEM_BYTES <= BODY_BYTES_MAX


def with_header(header: bytes, body_bytes: int = 0) -> bytes:
    return frames.PREFIX.pack(frames.MAGIC, frames.VERSION, Kind.CONTROL, 0, len(header), 0, body_bytes) + header


@settings(max_examples=400)
@given(st.sampled_from(FRAMES), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6))
def test_changed_bytes_are_refused_or_within_the_limits(frame: bytes, changes: list[tuple[int, int]]) -> None:
    changed = bytearray(frame)
    for at, byte in changes:
        changed[at % len(changed)] = byte
    header = decoded(bytes(changed))
    assert header is None or within_limits(header)
    assert changes or header is not None, "and what nobody changed is read"


@settings(max_examples=100)
@given(HEADERS, st.sampled_from([0, 4, 12, BODY_BYTES_MAX, 2**63]))
def test_well_formed_nonsense_is_refused_or_within_the_limits(values: Any, body_bytes: int) -> None:
    header = decoded(with_header(msgspec.msgpack.encode(values), body_bytes))
    assert header is None or within_limits(header)


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_any_bytes_for_a_header_are_refused_or_within_the_limits(data: bytes) -> None:
    header = decoded(with_header(data))
    assert header is None or within_limits(header)


def test_every_truncation_of_a_header_is_refused() -> None:
    for frame in FRAMES:
        head = frame[frames.PREFIX.size :]
        assert [n for n in range(len(head)) if decoded(with_header(head[:n])) is not None] == []


def test_deep_nesting_is_refused() -> None:
    for opener in (b"\x91", b"\x81\xa1a"):
        deep = b"\x93\xadcontrol.Hello\x90" + opener * (60_000 // len(opener))
        assert decoded(with_header(deep[: frames.HEADER_BYTES_MAX])) is None


HELLO = Hello(address="127.0.0.1:1", pid=1, host="here", device="cpu")
READY = Ready(length=1, fingerprint="", seconds_per_step=0.5, optimizer="", links=(0.5, 0.5), peers=(0.5,) * 4)
JUDGED = EvaluationReport(at=0.5, samples=1, accuracy=0.5, loss=0.5, seconds=0.5)
NUMBERED = [
    (message, name)
    for message in (HELLO, READY, PROGRESS, JUDGED, Rate(lr=0.5))
    for name, kind in type(message).__annotations__.items()
    if "float" in kind or kind == "Links"
]
MARK = 0.1875


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(("message", "name"), NUMBERED, ids=lambda of: of if isinstance(of, str) else type(of).__name__)
def test_a_number_that_is_none_is_refused(message: Any, name: str, number: float) -> None:
    was = getattr(message, name)
    marked = dataclasses.replace(message, **{name: (*was[1:], MARK) if isinstance(was, tuple) else MARK})
    frame = frames.encode(Envelope(Kind.CONTROL, marked), MEMORY)[0].tobytes()
    header = decoded(frame.replace(struct.pack(">d", MARK), struct.pack(">d", number)))
    assert header is not None
    if name == "loss":  # of a model that learns nothing any more
        assert repr(frames.assemble(header.codec, header.scalars, ()).loss) == repr(number)
    else:
        with pytest.raises(ProtocolError, match=f"{name}: -?(nan|inf) is no finite number"):
            frames.assemble(header.codec, header.scalars, ())
