"""This is the arithmetic that carriers of means need, on Flats."""

from __future__ import annotations

from collections.abc import Callable

import torch

from paceline.engine.sparse.sparse_vector import AnyFlat, SparseFlat
from paceline.engine.vectors.chunked import ChunkedVector
from paceline.engine.vectors.flat import Flat, on_host


class FlatAdder:
    """Adds, copies and reads vectors for the carriers of means; every method is at most one pass over memory."""

    def blend(self, mine: Flat, theirs: Flat, share: float, into: Flat) -> None:
        """Writes `into` <- mine + share (theirs - mine)."""
        torch.lerp(mine.value(), theirs.value(), share, out=into.tensor)

    def copy(self, v: Flat, into: Flat) -> None:
        """Writes `into` <- v; nothing is moved where they are the same memory."""
        if not v.same_as(into):
            v.copy_into(into.tensor)

    def dense(self, v: AnyFlat) -> Flat:
        """Returns `v` with its rows in their places."""
        return v.flat() if isinstance(v, SparseFlat) else v

    def readable(self, v: AnyFlat) -> Flat:
        """Returns `v` in host memory: itself, or a page-locked copy of what is on a GPU; rows are
        put in their places.
        """
        flat = self.dense(v)
        return flat if flat.device.type == "cpu" else Flat(on_host(flat))

    def when(self, v: Flat, action: Callable[[], None]) -> None:
        """Calls `action` once the numbers of `v` are there: now, or later on the thread that brings the last."""
        if isinstance(v, ChunkedVector):
            v.when(action)
        else:
            action()
