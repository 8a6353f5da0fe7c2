"""`SparseFlat` is a vector with tables in it: a gradient holds some rows, weights share all rows that did not change.

It takes part in arithmetic like any other vector, also with those, and gives the same numbers:

    a                  b                  a + b, a - b                              a * b, element by element
    some rows          some rows          some rows                                 some rows
    all rows           some rows          a new version, which costs those rows     some rows
    all rows           all rows           a - b: the rows that differ               one dense pass
    any                dense              a + b of rows: a new version; else one dense pass

Everything else (a gradient divided by a vector, say) goes through one dense vector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeGuard

import torch
from torch import Tensor

from paceline.engine.sparse.persistent_table import PersistentTable
from paceline.engine.sparse.rows import Rows
from paceline.engine.sparse.table_layout import Tables, TableSpan
from paceline.engine.vectors.buffer_pool import spare
from paceline.engine.vectors.flat import Flat, FlatMemory

Table = Rows | PersistentTable


class SparseFlat:
    """An immutable vector of float32 numbers has dense elements, packed, and tables, one for each place in `where`.

    Arithmetic raises ValueError when lengths differ.
    """

    __slots__ = ("__weakref__", "_flat", "dense", "tables", "where")
    __array_ufunc__ = None

    def __init__(self, where: Tables, dense: Flat, tables: tuple[Table, ...]) -> None:
        self.where, self.dense, self.tables = where, dense, tables
        self._flat: Flat | None = None

    @classmethod
    def weights(cls, v: Flat, where: Tables) -> SparseFlat:
        """Returns the numbers of `v` as a vector of which rows can change cheaply from now on: one copy."""
        dense = _packed(v, where)
        return cls(where, dense, tuple(_owned(v, place) for place in where.places))

    @property
    def nbytes(self) -> int:
        """Returns the bytes that it holds."""
        return self.dense.nbytes + sum(table.nbytes for table in self.tables)

    @property
    def device(self) -> torch.device:
        return self.dense.device

    @property
    def memory(self) -> FlatMemory:
        return self.dense.memory

    def __len__(self) -> int:
        return self.where.length

    @staticmethod
    def joined(parts: Sequence[AnyFlat], memory: FlatMemory) -> SparseFlat:
        """Returns one vector from consecutive parts of either kind."""
        found = [part for part in parts if isinstance(part, SparseFlat)]
        where = Tables.joined([part.where if isinstance(part, SparseFlat) else Tables(len(part), ()) for part in parts])
        dense = memory.join([part.dense if isinstance(part, SparseFlat) else part for part in parts])
        return SparseFlat(where, dense, tuple(table for part in found for table in part.tables))

    # ---- as one dense vector -----------------------------------------------------------------------------
    def flat(self) -> Flat:
        """Returns the same numbers one by one: a pass the first time."""
        if self._flat is None:
            out = spare(len(self), self.device)
            self.copy_into(out)
            self._flat = Flat(out)
        return self._flat

    def value(self) -> Tensor:
        """Returns all numbers as one tensor, with the zeros between the rows; float32 [length]."""
        return self.flat().value()

    def norm(self) -> float:
        """Returns the Euclidean length. With weights, whose tables are whole, all numbers are read."""
        rows = self._rows()
        if rows is None:
            return self.flat().norm()
        return math.hypot(self.dense.norm(), *(table.values.norm() for table in rows))

    def spliced(self, part: slice, v: Any) -> Flat:
        """Returns a dense vector in which the elements of `part` are replaced."""
        return self.flat().spliced(part, v)

    def copy_into(self, out: Tensor, known: object = None) -> None:
        """Writes the numbers over `out`, which holds those of `known`; of tables, only rows that may differ from it."""
        for there, here in self.where.packed:
            self.dense[here].copy_into(out[there])
        for i, (place, table) in enumerate(zip(self.where.places, self.tables, strict=True)):
            room = out[place.start : place.stop].view(place.height, place.width)
            if isinstance(table, Rows):
                table.copy_into(room)
            else:
                table.copy_into(room, known.tables[i] if self._like(known) else None)

    def same_as(self, other: object) -> bool:
        """Returns True if both share all memory, hence are equal; False says nothing. It reads no numbers."""
        if not self._like(other) or not self.dense.same_as(other.dense):
            return False
        return all(a is b for a, b in zip(self.tables, other.tables, strict=True))

    def _like(self, other: object) -> TypeGuard[SparseFlat]:
        """Returns True if `other` has its tables at the same places."""
        return isinstance(other, SparseFlat) and (self.where is other.where or self.where == other.where)

    # ---- parts -------------------------------------------------------------------------------------------
    def __getitem__(self, part: slice) -> AnyFlat:
        """Returns a part: the same memory where only some rows are held, a copy of weights.

        Raises ValueError for a step other than 1.
        """
        start, stop, step = part.indices(len(self))
        if step != 1:
            raise ValueError("a slice of a vector cannot skip elements")
        part = slice(start, max(start, stop))
        if part == slice(0, len(self)):
            return self
        # No table lies in the part: it is dense. Otherwise rows are cut out without a copy, and whole tables are made
        # dense.
        pieces = self.where.pieces(part)
        if not pieces:
            return self.dense[self.where.dense_part(part)]
        tables = []
        for piece in pieces:
            table = self.tables[piece.table]
            if not isinstance(table, Rows):
                return self.flat()[part]
            tables.append(table.piece(piece.row, piece.place.height, piece.column, piece.place.width))
        where = Tables(part.stop - part.start, tuple(piece.place for piece in pieces))
        return SparseFlat(where, self.dense[self.where.dense_part(part)], tuple(tables))

    # ---- arithmetic --------------------------------------------------------------------------------------
    def __add__(self, other: Any) -> Any:
        return self._sum(other, 1.0)

    def __sub__(self, other: Any) -> Any:
        return self._sum(other, -1.0)

    def __radd__(self, other: Any) -> Any:
        return self._sum(other, 1.0) if isinstance(other, Flat) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        if not isinstance(other, Flat):
            return NotImplemented
        _same_length(other, self)
        return SparseFlat.weights(other, self.where) - self

    def __neg__(self) -> Any:
        return self * -1.0

    def __mul__(self, factor: Any) -> Any:
        if isinstance(factor, SparseFlat):
            return self._product(factor)
        if isinstance(factor, Flat):
            return self.flat() * factor
        if float(factor) == 1.0:
            return self
        rows = self._rows()
        if rows is None:
            return self.flat() * factor
        return SparseFlat(self.where, self.dense * factor, tuple(table.times(factor) for table in rows))

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> Any:
        if isinstance(divisor, Flat | SparseFlat):
            return self.flat() / _flat(divisor)
        return self * (1.0 / divisor)

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.flat() if isinstance(other, Flat) else NotImplemented

    def __pow__(self, exponent: float) -> Any:
        rows = self._rows()
        if rows is None or exponent <= 0:  # what is zero does not stay zero
            return self.flat() ** exponent
        return SparseFlat(self.where, self.dense**exponent, tuple(table.power(exponent) for table in rows))

    def _rows(self) -> tuple[Rows, ...] | None:
        """Returns the tables, if all of them hold some rows only."""
        found = tuple(table for table in self.tables if isinstance(table, Rows))
        return found if len(found) == len(self.tables) else None

    def _sum(self, other: Any, sign: float) -> Any:
        """Returns self + sign other.

        Rows and rows give rows, weights and rows give weights of which only those rows are copied. Anything else is
        summed as dense vectors, which reads every row.
        """
        if not isinstance(other, Flat | SparseFlat):
            return NotImplemented
        _same_length(self, other)
        if isinstance(other, Flat) and sign > 0 and self._rows() is not None:
            return SparseFlat.weights(other, self.where) + self
        if self._like(other):
            tables = [_sum(a, b, sign) for a, b in zip(self.tables, other.tables, strict=True)]
            found = tuple(table for table in tables if table is not None)
            if len(found) == len(tables):
                return SparseFlat(self.where, self.dense + other.dense * sign, found)
        return self.flat() + _flat(other) * sign

    def _product(self, other: SparseFlat) -> Any:
        """Returns the product, element by element: rows times anything are rows, as the others stay zero."""
        _same_length(self, other)
        if not self._like(other):
            return self.flat() * other.flat()
        tables = []
        for a, b in zip(self.tables, other.tables, strict=True):
            some, any = (a, b) if isinstance(a, Rows) else (b, a)
            if not isinstance(some, Rows):
                return self.flat() * other.flat()
            factor = Flat(any.gather(some.rows).view(-1))
            tables.append(Rows(some.height, some.width, some.rows, some.values * factor))
        return SparseFlat(self.where, self.dense * other.dense, tuple(tables))

    def __repr__(self) -> str:
        return f"SparseFlat({len(self)}, of which {self.nbytes} bytes are held)"


AnyFlat = Flat | SparseFlat
"""Any vector that this package makes."""


def _sum(a: Table, b: Table, sign: float) -> Table | None:
    """Returns a + sign b where that touches some rows only; None elsewhere."""
    match a, b:
        case Rows(), Rows():
            return a.plus(b, sign)
        case PersistentTable(), Rows():
            return a.plus(b, sign)
        case Rows(), PersistentTable() if sign > 0:
            return b.plus(a)
        case PersistentTable(), PersistentTable() if sign < 0:
            return a.minus(b)
    return None


def _same_length(a: Any, b: Any) -> None:
    """Raises ValueError for vectors of different lengths."""
    if len(a) != len(b):
        raise ValueError(f"vectors of {len(a)} and {len(b)} elements do not go together")


def _flat(v: AnyFlat) -> Flat:
    """Returns a vector as a dense one."""
    return v.flat() if isinstance(v, SparseFlat) else v


def _packed(v: Flat, where: Tables) -> Flat:
    """Returns the dense elements of `v`, as a copy: a part of `v` would keep all of it in memory."""
    out = spare(where.dense_length, v.device)
    for there, here in where.packed:
        v[there].copy_into(out[here])
    return Flat(out)


def _owned(v: Flat, place: TableSpan) -> PersistentTable:
    """Returns a table that holds a copy of what lies at `place` in a dense vector."""
    buffer = torch.empty(place.height, place.width)
    v[place.start : place.stop].copy_into(buffer.view(-1))
    return PersistentTable.owning(buffer)
