"""Messages whose vectors travel as rows: refused where they lie, whole after a lost connection."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from paceline.core.coordination import party
from paceline.core.errors import PeerLost, ProtocolError
from paceline.core.paramserver.gated_server import Push, Weights
from paceline.engine.sparse.table_layout import Tables, TableSpan
from paceline.engine.vectors.flat import Flat
from paceline.live.protocol.row_packing import Packed, PackingPost, Parcel
from paceline.live.protocol.transport import Envelope, Kind
from paceline.runtime.spec.row_packer import CHANGE, ROWS, WHOLE, RowPacker
from tests.live.protocol.packed_rows import gradient, numbers, rows_parcel, weights

WHERE = Tables(2 + 10 * 3 + 1 + 4 * 2, (TableSpan(2, 10, 3), TableSpan(33, 4, 2)))


SERVER, WORKER = party.server(0), party.worker(0)


class Post:
    """A transport that keeps what is sent, or has lost everybody."""

    def __init__(self, me: party.Party) -> None:
        self.me, self.sent, self.lost = me, list[Any](), False

    def send(self, to: party.Party, envelope: Envelope) -> None:
        if self.lost:
            raise PeerLost("gone")
        self.sent.append(envelope.message)


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
