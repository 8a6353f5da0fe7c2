"""The arithmetic of means, on Flats."""

from __future__ import annotations

import torch

from paceline.engine.pool import spare
from paceline.engine.vector import Flat


class FlatAdder:
    """What the carriers of means ask of vectors; every method is at most one pass."""

    def blend(self, mine: Flat, theirs: Flat, share: float, into: Flat) -> None:
        """`into` <- mine + share (theirs - mine)."""
        torch.lerp(mine.value(), theirs.value(), share, out=into.tensor)

    def copy(self, v: Flat, into: Flat) -> None:
        """`into` <- v; nothing is moved where they are the same memory."""
        if not v.same_as(into):
            v.copy_into(into.tensor)

    def readable(self, v: Flat) -> Flat:
        """`v` in host memory: itself, or a page-locked copy of what is on a GPU."""
        if v.device.type == "cpu":
            return v
        host = spare(len(v), pinned=True)
        v.copy_into(host)
        return Flat(host)
