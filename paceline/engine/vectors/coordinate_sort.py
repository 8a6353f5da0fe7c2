"""What robust means ask of numbers: a sort across vectors, coordinate by coordinate."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from paceline.engine.vectors.buffer_pool import spare
from paceline.engine.vectors.flat import Flat

BLOCK = 1 << 14
"""Coordinates that are sorted at a time: what is needed for that stays in the cache."""


class Sorting:
    """The `Numerics` of `paceline.core.paramserver.robust_mean` for Flats."""

    def norm(self, v: Flat) -> float:
        return v.norm()

    def trimmed(self, vectors: Sequence[Flat], cut: int) -> Flat:
        tensors = [v.value() for v in vectors]
        n, length = len(tensors), len(tensors[0])
        out = spare(length, tensors[0].device)
        for at in range(0, length, BLOCK):
            block = torch.stack([tensor[at : at + BLOCK] for tensor in tensors])
            kept = block.sort(dim=0).values[cut : n - cut] if cut else block
            torch.mean(kept, dim=0, out=out[at : at + BLOCK])
        return Flat.wrap(out)
