"""The arithmetic of means, on Flats."""

from __future__ import annotations

import torch

from paceline.engine.vector import Flat, on_host


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
        return v if v.device.type == "cpu" else Flat(on_host(v))
