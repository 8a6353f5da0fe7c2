"""`Rows` is a table of which only some rows are held, because all others are zero: the gradient of an embedding."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.engine.vectors.buffer_pool import spare
from paceline.engine.vectors.flat import Flat

ROW_BYTES = 4
"""The bytes of a row's number on the wire."""

HEIGHT_MAX = 2**31 - 1
"""Rows of a table: their numbers travel as int32."""


class Rows:
    """An immutable table has `height` rows of `width` float32 numbers each, in host memory.

    rows: the numbers of the rows that are held, rising, as int64. values: the numbers in them, one row after the other.
    A row that is not held is zero, and stays zero whatever it is multiplied with, infinity included.
    """

    __slots__ = ("height", "rows", "values", "width")

    def __init__(self, height: int, width: int, rows: Tensor, values: Flat) -> None:
        self.height, self.width, self.rows, self.values = height, width, rows, values

    @classmethod
    def of(cls, gradient: Tensor) -> Rows:
        """Takes the rows of a sparse COO tensor of two dimensions; what it has twice of a row is added up."""
        found = gradient.detach().coalesce()
        values = found.values().cpu().reshape(-1)
        return cls(gradient.shape[0], gradient.shape[1], found.indices()[0].cpu(), Flat.wrap(values))

    @classmethod
    def none(cls, height: int, width: int) -> Rows:
        """Returns a table that is all zero."""
        return cls(height, width, torch.empty(0, dtype=torch.int64), Flat(torch.empty(0)))

    @classmethod
    def of_dense(cls, table: Tensor) -> Rows:
        """Returns those rows of a whole table that have anything but zeros in them."""
        height, width = table.shape
        rows = table.detach().any(1).nonzero()[:, 0]
        return cls(height, width, rows.cpu(), Flat.wrap(table.detach()[rows].cpu().reshape(-1)))

    @property
    def nbytes(self) -> int:
        """Returns the bytes of the rows that are held, with their numbers."""
        return self.values.nbytes + ROW_BYTES * len(self.rows)

    def matrix(self) -> Tensor:
        """Returns the values, one row each, to be read only."""
        return self.values.value().view(-1, self.width)

    def gather(self, rows: Tensor) -> Tensor:
        """Returns the numbers of `rows`, which need not be held."""
        out = torch.zeros(len(rows), self.width)
        if len(self.rows):
            at, held = find(self.rows, rows)
            out[held] = self.matrix()[at[held]]
        return out

    def piece(self, row: int, height: int, column: int, width: int) -> Rows:
        """Returns the part from `row` and `column` on: one row's part, or whole rows. It makes no copy."""
        low, high = torch.searchsorted(self.rows, torch.tensor([row, row + height])).tolist()
        first = low * self.width + column
        stop = high * self.width if height > 1 or width == self.width else first + width * (high - low)
        return Rows(height, width, self.rows[low:high] - row, self.values[first:stop])

    def copy_into(self, out: Tensor) -> None:
        """Writes the table over `out`."""
        out.zero_()
        out.index_copy_(0, self.rows.to(out.device), self.matrix().to(out.device))

    def times(self, factor: float) -> Rows:
        """Returns the rows multiplied by a number."""
        return Rows(self.height, self.width, self.rows, self.values * factor)

    def power(self, exponent: float) -> Rows:
        """Raises each element to `exponent`, which is above 0 and so leaves zero what is zero."""
        return Rows(self.height, self.width, self.rows, self.values**exponent)

    def plus(self, other: Rows, sign: float = 1.0) -> Rows:
        """Returns self + sign other, with the numbers that dense vectors would give, bit for bit."""
        if torch.equal(self.rows, other.rows):
            return Rows(self.height, self.width, self.rows, self.values + other.values * sign)
        both, at = torch.unique(torch.cat([self.rows, other.rows]), return_inverse=True)
        mine, theirs = at.split([len(self.rows), len(other.rows)])
        total = self._spread(mine, len(both)) + other._spread(theirs, len(both)) * sign
        return Rows(self.height, self.width, both, total)

    def _spread(self, at: Tensor, count: int) -> Flat:
        """Returns the values among `count` rows, zeros elsewhere."""
        out = spare(count * self.width).zero_()
        out.view(-1, self.width)[at] = self.values.tensor.view(-1, self.width)
        return Flat(out, self.values.scale)


def find(held: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Returns where in the rising, non-empty `held` each of `wanted` would be, and which of them are there."""
    at = torch.searchsorted(held, wanted).clamp_(max=len(held) - 1)
    return at, held[at] == wanted
