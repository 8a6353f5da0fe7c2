"""What leaves as rows arrives as the same vector, and nothing a stranger writes takes memory or breaks a table."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core.errors import PeerLost, ProtocolError
from paceline.core.paramserver.gated_server import Push, Weights
from paceline.engine.sparse.rows import Rows
from paceline.engine.sparse.sparse_vector import SparseFlat
from paceline.engine.sparse.table_layout import Tables, TableSpan
from paceline.engine.vectors.flat import Flat
from paceline.live import party
from paceline.live.protocol.row_packing import Packed, PackingPost, Parcel
from paceline.live.protocol.transport import Envelope, Kind
from paceline.runtime.spec.row_packing import CHANGE, ROWS, WHOLE, RowPacker

WHERE = Tables(2 + 10 * 3 + 1 + 4 * 2, (TableSpan(2, 10, 3), TableSpan(33, 4, 2)))
SERVER, WORKER = party.server(0), party.worker(0)


def numbers(count: int, seed: int = 0) -> Flat:
    return Flat(torch.randn(count, generator=torch.Generator().manual_seed(seed)))


def gradient(first: list[int], second: list[int], seed: int = 0) -> SparseFlat:
    tables = tuple(
        Rows(place.height, place.width, torch.tensor(held, dtype=torch.int64), numbers(len(held) * place.width, seed))
        for place, held in zip(WHERE.places, (first, second), strict=True)
    )
    return SparseFlat(WHERE, numbers(WHERE.dense_length, seed), tables)


def weights() -> SparseFlat:
    return SparseFlat.weights(numbers(WHERE.length), WHERE)


class Post:
    """A transport that keeps what is sent, or has lost everybody."""

    def __init__(self, me: party.Party) -> None:
        self.me, self.sent, self.lost = me, list[Any](), False

    def send(self, to: party.Party, envelope: Envelope) -> None:
        if self.lost:
            raise PeerLost("gone")
        self.sent.append(envelope.message)


def carried(v: Any, out: RowPacker, into: RowPacker) -> tuple[Any, Parcel]:
    parcel = out.pack(v, WORKER)
    return into.unpack(parcel, len(v), SERVER), parcel


@given(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 3)))
@settings(max_examples=60)
def test_a_gradient_arrives_as_it_left(first: set[int], second: set[int]) -> None:
    g = gradient(sorted(first), sorted(second))
    got, parcel = carried(g, RowPacker(), RowPacker())
    assert torch.equal(got.value(), g.value())
    assert len(parcel.numbers) <= len(g)


def test_weights_come_whole_once_and_then_as_the_rows_that_changed() -> None:
    server, worker, w = RowPacker(), RowPacker(), weights()
    got, parcel = carried(w, server, worker)
    assert (parcel.how[0], len(parcel.numbers)) == (WHOLE, len(w))
    first, before = got, w.value().clone()
    w = w - gradient([3, 7], [1]) * 0.1
    w = w - gradient([7], []) * 0.1
    got, parcel = carried(w, server, worker)
    assert (parcel.how[0], len(parcel.numbers)) == (CHANGE, 2 * (1 + 3) + 1 * (1 + 2) + WHERE.dense_length)
    assert torch.equal(got.value(), w.value())
    assert torch.equal(SparseFlat(first.where, first.dense, first.tables).value(), before)
    got, parcel = carried(w, server, worker)  # the same again: nothing but what is dense
    assert len(parcel.numbers) == WHERE.dense_length
    assert torch.equal(got.value(), w.value())


def test_older_weights_can_follow_newer_ones() -> None:
    server, worker, old = RowPacker(), RowPacker(), weights()
    before = old.value().clone()
    new = old - gradient([1, 2], [0])
    for w in (new, SparseFlat(old.where, old.dense, old.tables)):
        got, parcel = carried(w, server, worker)
    assert parcel.how[0] == CHANGE
    assert torch.equal(got.value(), before)


def test_weights_of_another_origin_come_whole() -> None:
    server, worker = RowPacker(), RowPacker()
    carried(weights(), server, worker)
    other = SparseFlat.weights(numbers(WHERE.length, 5), WHERE)
    got, parcel = carried(other, server, worker)
    assert parcel.how[0] == WHOLE
    assert torch.equal(got.value(), other.value())


def test_a_party_that_comes_back_gets_everything() -> None:
    server, w = RowPacker(), weights()
    server.pack(w, WORKER)
    server.forget(WORKER)
    assert server.pack(w, WORKER).how[0] == WHOLE


def test_what_would_be_longer_than_the_vector_travels_dense() -> None:
    parcel = RowPacker().pack(gradient(list(range(10)), list(range(4))), SERVER)
    assert (len(parcel.numbers), parcel.how) == (WHERE.length, ())


# ---- hostile ------------------------------------------------------------------------------------------------------
def rows_parcel(rows: list[int], *, height: int = 10, length: int | None = None, **changes: Any) -> Parcel:
    body = torch.cat([torch.tensor(rows, dtype=torch.int32).view(torch.float32), torch.zeros(3 * len(rows) + 1)])
    how = (changes.get("mode", ROWS), 0, changes.get("since", 0), 0, height, 3, changes.get("count", len(rows)))
    return Parcel(Flat(body if length is None else body[:length]), how)


@pytest.mark.parametrize("rows", [[10], [-1], [3, 3], [4, 2], [2**31 - 1]])
def test_rows_that_are_not_in_the_table_or_do_not_rise_are_refused(rows: list[int]) -> None:
    with pytest.raises(ProtocolError, match="rows"):
        RowPacker().unpack(rows_parcel(rows), 31, WORKER)


@pytest.mark.parametrize(
    ("parcel", "length"),
    [
        (rows_parcel([1], count=2), 31),  # more rows than there are numbers for
        (rows_parcel([1], count=-1), 31),
        (rows_parcel([1], count=2**60), 31),
        (rows_parcel([1], length=3), 31),
        (rows_parcel([1], height=2**40), 31),  # a table beyond the vector
        (rows_parcel([1], height=0), 31),
        (rows_parcel([1], mode=9), 31),
        (rows_parcel([1], mode=CHANGE, since=4), 31),  # of weights that were never sent
        (rows_parcel([1], mode=WHOLE), 31),
        (Parcel(Flat(torch.zeros(4)), ()), 5),
        (Parcel(Flat(torch.zeros(4)), (ROWS,)), 4),
        (Parcel(Flat(torch.zeros(4)), (ROWS, 0, 0, 0, 1)), 4),
    ],
)
def test_a_parcel_that_nobody_packs_is_refused(parcel: Parcel, length: int) -> None:
    with pytest.raises(ProtocolError):
        RowPacker().unpack(parcel, length, WORKER)


def posted(message: Any) -> tuple[PackingPost, Any]:
    transport: Any = Post(WORKER)
    post = PackingPost(transport, RowPacker())
    post.send(SERVER, Envelope(Kind.CALL, message))
    return post, transport.sent[0]


def test_the_message_is_the_old_one_when_it_is_unpacked() -> None:
    g = gradient([2], [])
    _, packed = posted(Push(g=g, clock=3, samples=5))
    assert isinstance(packed, Packed)
    there: Any = Post(SERVER)
    got = PackingPost(there, RowPacker()).unpacked(packed, WORKER, WHERE.length)
    assert (got.clock, got.samples) == (3, 5)
    assert torch.equal(got.g.value(), g.value())


def test_messages_without_tables_are_sent_as_they_are() -> None:
    message = Push(g=numbers(4), clock=1, samples=1)
    assert posted(message)[1] is message


def test_a_packed_message_that_lies_is_refused() -> None:
    _, packed = posted(Weights(w=weights(), version=1))
    there: Any = Post(SERVER)
    for wrong in (
        {"name": "packing.Packed"},
        {"name": "clocked.Pull"},
        {"name": "nobody.Knows"},
        {"scalars": b"\xc1"},
        {"length": -1},
        {"length": 2**60},
    ):
        with pytest.raises(ProtocolError):
            PackingPost(there, RowPacker()).unpacked(dataclasses.replace(packed, **wrong), WORKER, WHERE.length)


def test_after_a_connection_is_lost_nothing_is_assumed_to_have_arrived() -> None:
    transport: Any = Post(SERVER)
    post, w = PackingPost(transport, RowPacker()), weights()
    transport.lost = True
    with pytest.raises(PeerLost):
        post.send(WORKER, Envelope(Kind.REPLY, Weights(w=w, version=1)))
    transport.lost = False
    post.send(WORKER, Envelope(Kind.REPLY, Weights(w=w, version=1)))
    assert transport.sent[0].how[0] == WHOLE
