"""Gradients and weights with tables, and a channel that packs them."""

from __future__ import annotations

from typing import Any

import torch

from paceline.engine.sparse.rows import Rows
from paceline.engine.sparse.sparse_vector import SparseFlat
from paceline.engine.sparse.table_layout import Tables, TableSpan
from paceline.engine.vectors.flat import Flat
from paceline.live.protocol.row_packing import Parcel
from paceline.runtime.spec.row_packer import ROWS

WHERE = Tables(2 + 10 * 3 + 1 + 4 * 2, (TableSpan(2, 10, 3), TableSpan(33, 4, 2)))


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


def rows_parcel(rows: list[int], *, height: int = 10, length: int | None = None, **changes: Any) -> Parcel:
    body = torch.cat([torch.tensor(rows, dtype=torch.int32).view(torch.float32), torch.zeros(3 * len(rows) + 1)])
    how = (changes.get("mode", ROWS), 0, changes.get("since", 0), 0, height, 3, changes.get("count", len(rows)))
    return Parcel(Flat(body if length is None else body[:length]), how)
