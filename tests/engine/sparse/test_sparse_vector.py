"""A vector with tables gives the numbers that dense ones give, and touches only the rows it has to."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core.vector import Vector, cut
from paceline.engine.sparse.rows import Rows
from paceline.engine.sparse.sparse_vector import SparseFlat
from paceline.engine.sparse.table_layout import Tables, TableSpan
from paceline.engine.vectors.flat import Flat, FlatMemory

TABLES = Tables(3 + 5 * 2 + 4 + 6 * 3, (TableSpan(3, 5, 2), TableSpan(17, 6, 3)))  # dense: 3 in front, 4 between


def sparse(where: Tables, rows: list[list[int]], seed: int) -> SparseFlat:
    """A gradient with these rows of each table."""
    generator = torch.Generator().manual_seed(seed)
    tables = [
        Rows(p.height, p.width, torch.tensor(held, dtype=torch.int64), _random(len(held) * p.width, generator))
        for p, held in zip(where.places, rows, strict=True)
    ]
    return SparseFlat(where, _random(where.dense_length, generator), tuple(tables))


def _random(length: int, generator: torch.Generator) -> Flat:
    return Flat(torch.randn(length, generator=generator))


def dense(v: Any) -> Flat:
    """The same numbers as a plain Flat."""
    return Flat(v.value().clone())


@st.composite
def places_of_tables(draw: st.DrawFn) -> Tables:
    at, places = 0, []
    for _ in range(draw(st.integers(1, 3))):
        place = TableSpan(at + draw(st.integers(0, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 4)))
        places.append(place)
        at = place.stop
    return Tables(at + draw(st.integers(0, 3)), tuple(places))


@st.composite
def gradients(draw: st.DrawFn, where: Tables) -> SparseFlat:
    rows = [sorted(draw(st.sets(st.integers(0, p.height - 1)))) for p in where.places]
    return sparse(where, rows, draw(st.integers(0, 99))) * draw(st.sampled_from([1.0, -0.5, 3.0]))


def same(got: Any, wanted: Flat) -> None:
    torch.testing.assert_close(got.value(), wanted.value(), rtol=1e-6, atol=1e-6)


@given(st.data())
@settings(max_examples=150)
def test_arithmetic_gives_what_dense_vectors_give(data: st.DataObject) -> None:
    where = data.draw(places_of_tables())
    a, b = data.draw(gradients(where)), data.draw(gradients(where))
    w = SparseFlat.weights(_random(where.length, torch.Generator().manual_seed(7)), where)
    da, db, dw = dense(a), dense(b), dense(w)
    same(a + b, da + db)
    same(a - b, da - db)
    same(-a, -da)
    same(a * b, da * db)
    same(a**2, da**2)
    new, newer = w - a * 0.1, w - a * 0.1 + b
    same(w, dw)
    same(new, dw - da * 0.1)
    same(newer, dw - da * 0.1 + db)
    same(newer - w, db - da * 0.1)
    same(a * a * (newer - w) * 0.04, da * da * (db - da * 0.1) * 0.04)
    same(dw - a, dw - da)
    same(dw + a, dw + da)
    same(a + dw, da + dw)
    same(a - dw, da - dw)
    same(dw * a, dw * da)
    same(a * dw, da * dw)
    same(a / (dw * dw + a**0), da / (dw * dw + da**0))
    same(w * 0.5 + b, dw * 0.5 + db)
    same(dw / (w**2 + a**0), dw / (dw**2 + da**0))
    assert (newer - w).norm() == pytest.approx((db - da * 0.1).norm(), abs=1e-5)


@given(st.data())
@settings(max_examples=150)
def test_it_may_be_cut_anywhere_and_joined_again(data: st.DataObject) -> None:
    where = data.draw(places_of_tables())
    v = data.draw(gradients(where))
    parts = [v[part] for part in cut(len(v), data.draw(st.integers(1, len(v))))]
    assert torch.equal(torch.cat([part.value() for part in parts]), v.value())
    assert [len(part) for part in parts] == [part.value().numel() for part in parts]
    whole: Any = FlatMemory().join(parts)
    assert torch.equal(whole.value(), v.value())
    same(whole + v, v + v)


def test_sums_are_those_of_dense_vectors_bit_for_bit() -> None:
    a, b = sparse(TABLES, [[0, 3], [1, 2, 5]], 1), sparse(TABLES, [[3, 4], []], 2)
    assert torch.equal((a * 0.3 + b * 7.0).value(), (dense(a) * 0.3 + dense(b) * 7.0).value())


def test_it_is_a_vector_that_holds_what_it_has() -> None:
    v = sparse(TABLES, [[1], [0, 4]], 1)
    assert isinstance(v, Vector)
    assert (len(v), v.nbytes) == (35, 4 * (3 + 4) + (2 + 2 * 3) * 4 + 3 * 4)
    assert (v * 2.0).nbytes == v.nbytes
    assert (v + v).nbytes == v.nbytes


def test_vectors_of_unequal_length_do_not_go_together() -> None:
    v = sparse(TABLES, [[], []], 1)
    short: Any = Flat(torch.zeros(3))
    for act in (lambda: v + short, lambda: short - v, lambda: v * short, lambda: v - v[:5]):
        with pytest.raises(ValueError, match="do not go together"):
            act()
