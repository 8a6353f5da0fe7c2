"""Frames: what goes in comes out, and what is not a frame is refused before it costs anything."""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
import struct
import sys
import tracemalloc
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import paceline.schemes  # noqa: F401  enters their messages
from paceline.codec import Encoded
from paceline.core import message as messages
from paceline.core.collective.mean_server import Part
from paceline.core.coordination import control_messages as control
from paceline.core.errors import ProtocolError
from paceline.core.message import message, name_of, scalar_fields, vector_fields
from paceline.core.paramserver.gated_server import Push
from paceline.core.sharding import SLICES_MAX, Layout, lay_out
from paceline.core.vector import Vector
from paceline.live.protocol import frames
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.fakes import NumpyMemory, vector

REGISTERED = sorted(
    (cls for cls in messages._types.values() if cls.__module__.startswith("paceline.")), key=lambda cls: name_of(cls)
)
LIMIT = 1 << 20
MEMORY = NumpyMemory()

NUMBERS = st.lists(st.floats(width=32), max_size=20).map(lambda numbers: np.array(numbers, dtype=np.float32))
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(max_size=50),
    bytes: st.binary(max_size=50),
    bytes | None: st.none() | st.binary(max_size=50),
    bool: st.booleans(),
    Vector: NUMBERS,
    Layout: st.builds(lay_out, st.integers(5, 2**40), st.integers(0, 5), st.integers(2**30, 2**40)),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    if get_origin(hint) is tuple:
        first, *rest = get_args(hint)
        if rest and rest != [...]:
            return st.tuples(*map(values_of, get_args(hint)))
        return st.lists(values_of(first), max_size=20).map(tuple)
    if get_origin(hint) is dict:
        key, value = map(values_of, get_args(hint))
        return st.dictionaries(key, value, max_size=10)
    return SCALARS[hint]


def messages_of(cls: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(cls)
    return st.builds(cls, **{field.name: values_of(hints[field.name]) for field in dataclasses.fields(cls)})


def bytes_of(envelope: Envelope) -> bytes:
    return b"".join(frames.encode(envelope, MEMORY))


def decode(data: bytes) -> Envelope:
    """The frame, by way of every check on the receiving side."""
    prefix = frames.decode_prefix(data[: frames.PREFIX.size], LIMIT)
    head = frames.PREFIX.size + prefix.header_bytes
    header = frames.decode_header(data[frames.PREFIX.size : head], prefix.body_bytes)
    lengths, forms = header.lengths, header.forms
    vectors: list[Any] = []
    at = head
    for length, form in zip(lengths, forms or [None] * len(lengths), strict=True):
        part = data[at : at + (form.nbytes if form else 4 * length)]
        if form:
            vectors.append(Encoded(form.codec, length, part, form.row, form.base, form.exact))
        else:
            vectors.append(np.frombuffer(part, np.float32))
        at += len(part)
    assert at == len(data)
    message = frames.assemble(header.codec, header.scalars, vectors)
    return Envelope(prefix.kind, message, prefix.id, prefix.slice, header.server_view)


def same(one: Any, other: Any) -> bool:
    scalars = all(getattr(one, name) == getattr(other, name) for name in scalar_fields(type(one)))
    pairs = [(getattr(one, name), getattr(other, name)) for name in vector_fields(type(one))]
    return scalars and type(one) is type(other) and all(a.tobytes() == b.tobytes() for a, b in pairs)


@pytest.mark.parametrize("cls", REGISTERED, ids=name_of)
@settings(max_examples=30)
@given(data=st.data())
def test_every_registered_message_comes_out_as_it_went_in(cls: Any, data: st.DataObject) -> None:
    sent = Envelope(data.draw(st.sampled_from(Kind)), data.draw(messages_of(cls)), data.draw(st.integers(0, 2**64 - 1)))
    came = decode(bytes_of(sent))
    assert same(came.message, sent.message)
    assert (came.kind, came.id) == (sent.kind, sent.id)


def test_there_are_messages_with_and_without_vectors_among_those_tested() -> None:
    assert any(vector_fields(cls) for cls in REGISTERED)
    assert len(REGISTERED) > 20


def test_vectors_leave_from_where_they_lie() -> None:
    v = vector(1, 2, 3)
    _, body = frames.encode(Envelope(Kind.CALL, Push(g=v, clock=1, samples=1)), MEMORY)
    v[0] = 7
    assert bytes(body) == v.tobytes()


def test_a_message_without_vectors_has_the_header_that_the_format_says() -> None:
    (frame,) = frames.encode(Envelope(Kind.CONTROL, control.Stop(reason="steps")), MEMORY)
    assert bytes(frame[frames.PREFIX.size :]) == msgspec.msgpack.encode(["control.Stop", [], ["steps"], [], [], [], 0])


def test_a_header_that_is_too_long_is_refused_where_it_would_leave() -> None:
    with pytest.raises(ProtocolError, match=r"header of control.Stop has 70\d\d\d bytes"):
        bytes_of(Envelope(Kind.CONTROL, control.Stop(reason="x" * 70_000)))


def prefix(**wrong: Any) -> bytes:
    right = {"magic": b"PACE", "version": frames.VERSION, "kind": 4, "slice": 0, "header": 10, "id": 0, "body": 0}
    return struct.pack("!4sBBHIQQ", *{**right, **wrong}.values())


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"magic": b"HTTP"}, "not a Paceline frame"),
        ({"version": 1}, "protocol version 1, this side 2"),
        ({"kind": 0}, "the kind 0 of a frame is unknown"),
        ({"kind": 255}, "the kind 255 of a frame is unknown"),
        ({"header": 2**32 - 1}, "the header has 4294967295 bytes"),
        ({"header": frames.HEADER_BYTES_MAX + 1}, "the header has 65537 bytes"),
        ({"body": LIMIT + 1}, "the body has 1048577 bytes"),
        ({"body": 2**63}, "the body has 9223372036854775808 bytes"),
        ({"body": 2**64 - 1}, "the body has 18446744073709551615 bytes"),
    ],
    ids=str,
)
def test_a_prefix_that_is_not_ours_or_promises_too_much_is_refused(wrong: dict[str, Any], complaint: str) -> None:
    assert frames.decode_prefix(prefix(), LIMIT).header_bytes == 10
    with pytest.raises(ProtocolError, match=complaint):
        frames.decode_prefix(prefix(**wrong), LIMIT)


def header(name: Any, lengths: Any, scalars: Any, *forms: Any) -> bytes:
    return msgspec.msgpack.encode([name, lengths, scalars, *forms])


TOTAL, PUSH, TWO = "control.Total", "clocked.Push", [1, 1]
HOSTILE: dict[str, tuple[bytes, int]] = {
    "an unknown name": (header("os.system", [], ["true"]), 0),
    "a name that is no text": (header(7, [], []), 0),
    "a name in broken unicode": (b"\x93\xa2\xff\xfe\x90\x90", 0),
    "a scalar in broken unicode": (b"\x93\xaccontrol.Stop\x90\x91\xa2\xff\xfe", 0),
    "an unknown field": (header(TOTAL, [], [1, 2, 3, 4]), 0),
    "a missing field": (header(TOTAL, [], []), 0),
    "a scalar of another type": (header(TOTAL, [], ["1"]), 0),
    "a float for an int": (header(TOTAL, [], [1.5]), 0),
    "nothing for an int": (header(TOTAL, [], [None]), 0),
    "scalars that are no array": (header(TOTAL, [], {"samples": 1}), 0),
    "one part too many": (msgspec.msgpack.encode([TOTAL, [], [1], [], [], [], []]), 0),
    "a place for no vector": (msgspec.msgpack.encode([TOTAL, [], [1], [[1, 0, 1]], []]), 0),
    "more places than vectors": (msgspec.msgpack.encode([PUSH, [1], [1, 1], [[1, 0, 1], None], []]), 0),
    "bytes of a vector that has a place": (msgspec.msgpack.encode([PUSH, [1], [1, 1], [[1, 0, 1]], []]), 4),
    "a place that is no place": (msgspec.msgpack.encode([PUSH, [1], [1, 1], [[1, 0]], []]), 0),
    "a place on a float": (msgspec.msgpack.encode([PUSH, [1], [1, 1], [[1, 0.5, 1]], []]), 0),
    "a place and a form": (header(PUSH, [4], TWO, [[1, 0, 1]], [], [["2bit", 16, 0, 0, 0]]), 16),
    "one part too few": (msgspec.msgpack.encode([TOTAL, []]), 0),
    "no array at all": (msgspec.msgpack.encode({"name": TOTAL}), 0),
    "something after the end": (header(TOTAL, [], [1]) + b"\0", 0),
    "nothing at all": (b"", 0),
    "a sum that is too small": (header(PUSH, [3], TWO), 16),
    "a sum that is too large": (header(PUSH, [5], TWO), 16),
    "a length of 2**63": (header(PUSH, [2**63], TWO), 16),
    "lengths whose bytes would overflow into the right sum": (header(PUSH, [2**62 + 4], TWO), 16),
    "a negative length": (header(PUSH, [-4], TWO), 16),
    "negative and positive that make up the sum": (header(PUSH, [-4, 8], TWO), 16),
    "more vectors than the message has": (header(PUSH, [2, 2], TWO), 16),
    "no vector where the message has one": (header(PUSH, [], TWO), 0),
    "vectors where the message has none": (header(TOTAL, [4], [1]), 16),
    "a body where the message has no vector": (header(TOTAL, [], [1]), 16),
    "more forms than vectors": (header(PUSH, [4], TWO, [], [], [None, ["2bit", 4, 0, 0, 0]]), 16),
    "a form with fewer bytes than the body": (header(PUSH, [4], TWO, [], [], [["2bit", 4, 0, 0, 0]]), 16),
    "a form with negative bytes": (header(PUSH, [4], TWO, [], [], [["2bit", -16, 0, 0, 0]]), 16),
    "a form with more bytes than any codec makes": (
        header(PUSH, [4], TWO, [], [], [["2bit", 1 << 20, 0, 0, 0]]),
        1 << 20,
    ),
    "a form of a negative length": (header(PUSH, [-4], TWO, [], [], [["2bit", 16, 0, 0, 0]]), 16),
    "a form that is no form": (header(PUSH, [4], TWO, [], [], ["2bit"]), 16),
    "a length that is no number": (header(PUSH, ["4"], TWO), 16),
    "arrays a thousand deep for a header": (b"\x93" + b"\x91" * 60_000, 0),
    "arrays a thousand deep for scalars": (b"\x93\xaccontrol.Stop\x90" + b"\x91" * 60_000, 0),
    "an array that claims 2**32 - 1 items": (b"\xdd\xff\xff\xff\xff", 0),
    "a name that claims 2**32 - 1 bytes": (b"\x93\xdb\xff\xff\xff\xff", 0),
    "an extension type": (b"\x93\xaccontrol.Stop\x90\x91\xc7\x04\x01abcd", 0),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_header_with_anything_wrong_is_refused_without_taking_memory_for_it(what: str) -> None:
    data, body_bytes = HOSTILE[what]
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            frames.decode_header(data, body_bytes)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_plan_of_as_many_slices_as_there_may_be_fits_its_header() -> None:
    layout = lay_out(2**40, 100, 1)
    assert SLICES_MAX <= len(layout.holders) <= SLICES_MAX + 100
    plan = control.Plan(workers=1, servers=1, length=1, layout=layout, seconds_per_step=(), optimizer="x" * 4096)
    assert decode(bytes_of(Envelope(Kind.CONTROL, plan))).message == plan


def test_an_encoded_vector_travels_as_its_bytes_with_all_that_decoding_needs() -> None:
    sent = Encoded("2bit", 1000, np.arange(252, dtype=np.uint8), 7, 3, 2)
    frame = frames.encode(Envelope(Kind.CALL, Push(g=sent, clock=1, samples=2)), MEMORY)
    assert frame[1].nbytes == 252
    got = decode(b"".join(frame)).message.g
    assert (got.codec, got.length, got.row, got.base, got.exact) == ("2bit", 1000, 7, 3, 2)
    assert bytes(got.data) == sent.data.tobytes()


def test_a_frame_says_for_which_slice_of_its_receiver_it_is() -> None:
    sent = Envelope(Kind.CALL, Push(g=vector(1), clock=1, samples=2), id=7, slice=65_535)
    got = decode(bytes_of(sent))
    assert (got.kind, got.id, got.slice) == (Kind.CALL, 7, 65_535)


@pytest.mark.parametrize("cls", [control.Plan, Push, Part], ids=name_of)
def test_a_header_cut_short_anywhere_is_refused(cls: Any) -> None:
    plan = control.Plan(
        workers=2, servers=1, length=4, layout=lay_out(4, 1, 2), seconds_per_step=(1.0, 2.0), optimizer="sgd"
    )
    part = Part(v=vector(1), among=(0, 1), tag="t", weight=1.0)
    whole = {control.Plan: plan, Push: Push(g=vector(1), clock=1, samples=2), Part: part}[cls]
    frame = frames.encode(Envelope(Kind.CALL, whole), MEMORY)
    head, body_bytes = bytes(frame[0])[frames.PREFIX.size :], 4 * len(vector_fields(cls))
    assert frames.decode_header(head, body_bytes).codec.cls is cls
    for length in range(len(head)):
        with pytest.raises(ProtocolError):
            frames.decode_header(head[:length], body_bytes)


@given(st.binary(max_size=200), st.integers(0, 1000))
def test_no_bytes_whatsoever_do_worse_than_a_protocol_error(data: bytes, body_bytes: int) -> None:
    for act in (
        lambda: frames.decode_header(data, body_bytes),
        lambda: frames.decode_prefix(data[:28].ljust(28, b"\0"), LIMIT),
    ):
        with contextlib.suppress(ProtocolError):
            act()


@message("test_wire.Picky")
class Picky:
    share: float

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError("a share lies between 0 and 1")


def test_a_message_that_refuses_its_own_values_is_a_protocol_error() -> None:
    picky = frames.decode_header(header(name_of(Picky), [], [2.0]), 0)
    with pytest.raises(ProtocolError, match="a share lies between 0 and 1"):
        frames.assemble(picky.codec, picky.scalars, [])


class Boom:
    def __reduce__(self) -> tuple[Any, ...]:
        return sys.exit, (3,)


def test_a_pickle_is_bytes_like_any_others() -> None:
    with pytest.raises(ProtocolError):
        frames.decode_header(pickle.dumps(Boom()), 0)
    with pytest.raises(ProtocolError):
        frames.decode_header(header(TOTAL, [], [pickle.dumps(Boom())]), 0)
