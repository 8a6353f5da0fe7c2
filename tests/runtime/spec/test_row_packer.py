"""What leaves as rows arrives as the same vector, and nothing a stranger writes takes memory or breaks a table."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core.coordination import party
from paceline.core.errors import ProtocolError
from paceline.engine.sparse.sparse_vector import SparseFlat
from paceline.engine.sparse.table_layout import Tables, TableSpan
from paceline.live.protocol.row_packing import Parcel
from paceline.runtime.spec.row_packer import CHANGE, WHOLE, RowPacker
from tests.live.protocol.packed_rows import gradient, numbers, rows_parcel, weights

WHERE = Tables(2 + 10 * 3 + 1 + 4 * 2, (TableSpan(2, 10, 3), TableSpan(33, 4, 2)))


SERVER, WORKER = party.server(0), party.worker(0)


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


@pytest.mark.parametrize("rows", [[10], [-1], [3, 3], [4, 2], [2**31 - 1]])
def test_rows_that_are_not_in_the_table_or_do_not_rise_are_refused(rows: list[int]) -> None:
    with pytest.raises(ProtocolError, match="rows"):
        RowPacker().unpack(rows_parcel(rows), 31, WORKER)
