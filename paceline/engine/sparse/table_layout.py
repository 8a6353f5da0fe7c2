"""Says where the tables of rows lie in a flat vector, and where everything else.

A table is a parameter whose gradient comes in rows, such as the weight of `nn.Embedding(sparse=True)`. What is no table
is *dense*; packed, the dense elements follow one another as in the vector. A cut through a row leaves two narrow tables
of one row, so a vector may be cut anywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class TableSpan:
    """A table has `height` rows of `width` elements each, from element `start` on."""

    start: int
    height: int
    width: int

    @property
    def stop(self) -> int:
        """Returns where the table ends in the vector."""
        return self.start + self.height * self.width


@dataclass(frozen=True, slots=True)
class TablePiece:
    """Says what a cut leaves of a table: `place` in the cut vector, and which row and column of the
    table it begins with.
    """

    table: int
    place: TableSpan
    row: int
    column: int


@dataclass(frozen=True)
class Tables:
    """Says where the tables lie in a vector of `length` elements.

    Raises ValueError unless the places are in order, do not overlap and lie within the vector.
    """

    length: int
    places: tuple[TableSpan, ...]

    def __post_init__(self) -> None:
        at = 0
        for place in self.places:
            if place.start < at or place.height < 1 or place.width < 1 or place.stop > self.length:
                raise ValueError(f"no tables {self.places} in a vector of {self.length} elements")
            at = place.stop

    @functools.cached_property
    def dense(self) -> tuple[slice, ...]:
        """Returns where in the vector the dense elements are; none of the slices is empty."""
        edges = [0, *(edge for place in self.places for edge in (place.start, place.stop)), self.length]
        between = zip(edges[::2], edges[1::2], strict=True)
        return tuple(slice(start, stop) for start, stop in between if start < stop)

    @functools.cached_property
    def dense_length(self) -> int:
        """Returns how many numbers lie in no table."""
        return sum(part.stop - part.start for part in self.dense)

    @functools.cached_property
    def packed(self) -> tuple[tuple[slice, slice], ...]:
        """Returns for each run of dense elements where it is in the vector, and where once packed."""
        found, at = [], 0
        for part in self.dense:
            found.append((part, slice(at, at + part.stop - part.start)))
            at = found[-1][1].stop
        return tuple(found)

    def dense_part(self, part: slice) -> slice:
        """Returns which of the packed dense elements lie in `part` of the vector."""
        return slice(self._dense_before(part.start), self._dense_before(part.stop))

    def _dense_before(self, end: int) -> int:
        """Returns how many numbers of no table lie before `end`."""
        return end - sum(min(end, place.stop) - place.start for place in self.places if place.start < end)

    def pieces(self, part: slice) -> tuple[TablePiece, ...]:
        """Returns what of the tables lies in `part`, in order."""
        return tuple(piece for table, place in enumerate(self.places) for piece in _pieces(table, place, part))

    def cut(self, part: slice) -> Tables:
        """Returns the tables in `part` of the vector."""
        return Tables(part.stop - part.start, tuple(piece.place for piece in self.pieces(part)))

    @classmethod
    def joined(cls, all: Sequence[Tables]) -> Tables:
        """Returns the tables of vectors one after the other. What was one table before a cut stays several."""
        places, at = [], 0
        for one in all:
            places += [TableSpan(at + p.start, p.height, p.width) for p in one.places]
            at += one.length
        return cls(at, tuple(places))


def _pieces(table: int, place: TableSpan, part: slice) -> Iterator[TablePiece]:
    """Yields the end of a row, whole rows, the beginning of a row, as far as `part` has them."""
    at, stop = max(part.start, place.start), min(part.stop, place.stop)
    while at < stop:
        row, column = divmod(at - place.start, place.width)
        whole = (stop - at) // place.width
        height, width = (whole, place.width) if not column and whole else (1, min(place.width - column, stop - at))
        yield TablePiece(table, TableSpan(at - part.start, height, width), row, column)
        at += height * width
