"""Packs vectors with tables into fewer numbers: gradients as the rows they hold, weights as the rows that changed.

    gradient    the rows of each table that it holds, and the dense elements
    weights     the first time all of them; later what changed since those that this party was sent last

A parcel is one float32 vector: of each table the numbers of its rows (as 32-bit integers, bit for bit), then their
values; after the tables the dense elements. `how` says

    mode, number, since, tables, and of each table: start, height, width, rows

`number` counts the weights sent to this party, `since` is that of the ones a difference goes by, which it still has.
A vector whose parcel would be longer than itself travels dense.

Example: a table of 4 rows of 2 and 3 dense elements, length 11. A gradient with row 2 alone travels as

    numbers  [2, g20, g21, d0, d1, d2]              6 instead of 11
    how      (1, 0, 0,  0, 4, 2, 1)                 mode ROWS; a table at 0, of height 4 and width 2, 1 row

`live/protocol/channel.py` calls `pack` and `unpack`, and knows no torch; this is its implementation of tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paceline.core.coordination.party import Party
from paceline.core.errors import ProtocolError
from paceline.engine.sparse.persistent_table import Mark, PersistentTable
from paceline.engine.sparse.rows import Rows
from paceline.engine.sparse.sparse_vector import SparseFlat
from paceline.engine.sparse.table_layout import Tables, TableSpan
from paceline.engine.vectors.buffer_pool import spare
from paceline.engine.vectors.flat import Flat
from paceline.live.protocol.row_packing import Parcel

ROWS, WHOLE, CHANGE = 1, 2, 3
"""Modes: the rows of a gradient; weights with all their numbers; the rows of weights that changed."""


@dataclass(slots=True)
class _Sent:
    """Describes the weights that a party was sent last, by number and version marks, without keeping them."""

    number: int
    where: Tables
    marks: tuple[Mark, ...]

    def changes(self, v: SparseFlat) -> tuple[Tensor, ...] | None:
        """Returns, for each table, the rows that may differ in `v`; None when all may."""
        if v.where != self.where:
            return None
        found = [t.changed_since(mark) for t, mark in zip(_weights_of(v), self.marks, strict=True)]
        known = tuple(rows for rows in found if rows is not None)
        return known if len(known) == len(found) else None


class RowPacker:
    """Packs and unpacks for one party. It remembers what it has sent to each of the others, and what it holds of
    theirs.

    Weights of both sides must agree: a difference goes by the weights of number `since`, and is refused if the
    receiver holds others. Connections keep order, so that happens only to a faulty sender.
    """

    packed = SparseFlat

    def __init__(self) -> None:
        self._sent: dict[Party, _Sent] = {}
        self._held: dict[Party, tuple[int, SparseFlat]] = {}

    def forget(self, party: Party) -> None:
        """Forgets a party whose process was replaced: the next weights travel whole."""
        self._sent.pop(party, None)
        self._held.pop(party, None)

    def plain(self, v: Any) -> Any:
        """Returns `v` as a vector without tables."""
        return v.flat() if isinstance(v, SparseFlat) else v

    # ---- out ---------------------------------------------------------------------------------------------
    def pack(self, v: SparseFlat, to: Party) -> Parcel:
        """Returns the parcel in which `v` travels to that party."""
        if all(isinstance(table, Rows) for table in v.tables):
            rows = [(table.rows, table.matrix()) for table in v.tables if isinstance(table, Rows)]
            return _parcel(v, rows, (ROWS, 0, 0)) or Parcel(v.flat(), ())
        if all(isinstance(table, PersistentTable) for table in v.tables):
            return self._pack_weights(v, to)
        return Parcel(v.flat(), ())

    def _pack_weights(self, v: SparseFlat, to: Party) -> Parcel:
        """Returns the parcel of weights: what changed since the last ones, or all of them where that would be
        longer."""
        before, tables = self._sent.get(to), _weights_of(v)
        number = before.number + 1 if before else 1
        self._sent[to] = _Sent(number, v.where, tuple(table.mark for table in tables))
        changed = before.changes(v) if before else None
        if before and changed is not None:
            rows = [(rows, table.gather(rows)) for rows, table in zip(changed, tables, strict=True)]
            parcel = _parcel(v, rows, (CHANGE, number, before.number))
            if parcel is not None:
                return parcel
        return Parcel(v.flat(), (WHOLE, number, 0, *_written(v.where, [0] * len(tables))))

    # ---- in ----------------------------------------------------------------------------------------------
    def unpack(self, parcel: Parcel, length: int, src: Party) -> Any:
        """Returns the vector of `length` numbers that a parcel from `src` stands for.

        Raises ProtocolError for anything malformed: an unknown mode, tables that overlap, rows outside a table,
        other weights than those held here.
        """
        numbers: Flat = parcel.numbers
        if not parcel.how:
            return _of_length(numbers, length)
        (mode, number, since), (where, counts) = parcel.how[:3], _read(parcel.how[3:], length)
        if mode == WHOLE:
            weights = SparseFlat.weights(_of_length(numbers, length), where)
        elif mode == ROWS:
            rows, values, dense = _parts(numbers, where, counts)
            places = zip(where.places, rows, values, strict=True)
            return SparseFlat(where, dense, tuple(Rows(p.height, p.width, at, v) for p, at, v in places))
        elif mode == CHANGE:
            weights = self._changed(where, since, src, *_parts(numbers, where, counts))
        else:
            raise ProtocolError(f"vectors are not packed in mode {mode}")
        self._held[src] = number, weights
        return weights

    def _changed(
        self, where: Tables, since: int, src: Party, rows: list[Tensor], values: list[Flat], dense: Flat
    ) -> SparseFlat:
        """Returns the held weights of `src` with some rows replaced. Raises ProtocolError if they are not number
        `since`."""
        number, held = self._held.get(src, (0, None))
        if held is None or number != since or held.where != where:
            raise ProtocolError(f"{src} sends what changed in its weights since number {since}, held here is {number}")
        tables = zip(_weights_of(held), rows, values, strict=True)
        new = [table.replaced(at, v.value().view(-1, table.width)) for table, at, v in tables]
        return SparseFlat(where, dense, tuple(new))


def _weights_of(v: SparseFlat) -> list[PersistentTable]:
    """Returns the tables of weights, each of which knows its versions."""
    return [table for table in v.tables if isinstance(table, PersistentTable)]


def _parcel(v: SparseFlat, rows: list[tuple[Tensor, Tensor]], head: tuple[int, int, int]) -> Parcel | None:
    """Returns the parcel of these rows with their values and of the dense elements; None if it would not be shorter."""
    length = len(v.dense) + sum(len(at) + values.numel() for at, values in rows)
    if length >= len(v):
        return None
    # Written straight into the buffer that is sent: the values are copied once.
    out = spare(length)
    end = 0
    for at, values in rows:
        start, end = end, end + len(at)
        out[start:end].view(torch.int32).copy_(at)
        start, end = end, end + values.numel()
        out[start:end].view_as(values).copy_(values)
    v.dense.copy_into(out[end:])
    return Parcel(Flat(out), head + _written(v.where, [len(at) for at, _ in rows]))


def _written(where: Tables, counts: list[int]) -> tuple[int, ...]:
    """Returns the numbers of `how` that describe the tables."""
    return tuple(n for p, count in zip(where.places, counts, strict=True) for n in (p.start, p.height, p.width, count))


def _read(how: tuple[int, ...], length: int) -> tuple[Tables, list[int]]:
    """Returns the tables that `how` describes, and the rows of each. Raises ProtocolError."""
    if len(how) % 4 or not how:
        raise ProtocolError(f"{len(how)} numbers do not describe tables")
    try:
        where = Tables(length, tuple(TableSpan(*how[i : i + 3]) for i in range(0, len(how), 4)))
    except ValueError as error:
        raise ProtocolError(str(error)) from None
    return where, list(how[3::4])


def _of_length(numbers: Flat, length: int) -> Flat:
    """Returns `numbers` if there are `length` of them. Raises ProtocolError."""
    if len(numbers) != length:
        raise ProtocolError(f"{len(numbers)} numbers for a vector of {length}")
    return numbers


def _parts(numbers: Flat, where: Tables, counts: list[int]) -> tuple[list[Tensor], list[Flat], Flat]:
    """Returns rows and values of each table, and the dense elements. Raises ProtocolError when they do not fit the
    tables.
    """
    places = where.places
    needed = where.dense_length + sum(n * (1 + p.width) for n, p in zip(counts, places, strict=True))
    if any(not 0 <= n <= p.height for n, p in zip(counts, places, strict=True)) or needed != len(numbers):
        raise ProtocolError(f"{len(numbers)} numbers do not make {counts} rows of {places}")
    rows, values, end = [], [], 0
    for count, place in zip(counts, places, strict=True):
        start, end = end, end + count
        rows.append(_checked(numbers.value()[start:end].view(torch.int32).to(torch.int64), place.height))
        start, end = end, end + count * place.width
        values.append(numbers[start:end])
    return rows, values, numbers[end:]


def _checked(rows: Tensor, height: int) -> Tensor:
    """Returns row numbers, int64 [n]. Raises ProtocolError unless they increase and lie below `height`.

    Rows that came twice would be added twice, and one outside would write into memory of others.
    """
    rising = bool((rows[1:] > rows[:-1]).all())
    if len(rows) and (not rising or int(rows[0]) < 0 or int(rows[-1]) >= height):
        raise ProtocolError(f"numbers of rows that do not rise, or do not lie within a table of {height}")
    return rows
