"""Handles tables of rows: what a sparse gradient is as a vector, and rows of a value by their numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paceline.engine.sparse.rows import HEIGHT_MAX, Rows
from paceline.engine.sparse.sparse_vector import SparseFlat
from paceline.engine.sparse.table_layout import Tables, TableSpan
from paceline.engine.vectors.flat import Flat


def whole(w: Any) -> Flat:
    """Returns `w` as a vector with all its numbers, without tables."""
    return w.flat() if isinstance(w, SparseFlat) else w


def gradient(height: int, width: int, rows: Tensor, values: Tensor) -> SparseFlat:
    """Returns a table [height, width] that is zero but for `rows` (int64 [n], increasing), whose values are `values`
    [n, width].

    It takes `values` over: nobody else may change them.
    """
    where = Tables(height * width, (TableSpan(0, height, width),))
    table = Rows(height, width, rows.cpu(), Flat.wrap(values.cpu().reshape(-1)))
    return SparseFlat(where, Flat(torch.empty(0)), (table,))


def table_of(w: Any, g: Any) -> Any:
    """Returns `w` as a table whose rows change cheaply, if `g` has some rows only."""
    if isinstance(g, SparseFlat) and isinstance(w, Flat):
        return SparseFlat.weights(w, g.where)
    return w


def numbers_of(rows: Tensor) -> Flat:
    """Returns row numbers as a float32 vector that carries them as 32-bit integers, bit for bit."""
    return Flat.wrap(rows.to("cpu", torch.int32).view(torch.float32))


def rows_of(w: Any, rows: Flat, width: int) -> Flat:
    """Returns these rows of `w`, one after the other. Raises ValueError for rows that it does not have."""
    height = len(w) // max(1, width)
    wanted = rows.value().view(torch.int32).to(torch.int64)
    if width < 1 or height * width != len(w) or height > HEIGHT_MAX:
        raise ValueError(f"it has no rows of {width} elements")
    if len(wanted) and not 0 <= int(wanted.min()) <= int(wanted.max()) < height:
        raise ValueError(f"its rows go from 0 to {height - 1}")
    if isinstance(w, SparseFlat) and len(w.tables) == 1 and w.tables[0].width == width:
        return Flat(w.tables[0].gather(wanted).view(-1))
    return Flat(whole(w).value().view(height, width).index_select(0, wanted).view(-1))
