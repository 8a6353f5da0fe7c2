"""Robust means need a sort across vectors, coordinate by coordinate, which this file makes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from paceline.engine.vectors.buffer_pool import spare
from paceline.engine.vectors.flat import Flat

BLOCK = 1 << 14
"""So many coordinates are sorted at a time: what is needed for that stays in the cache."""


class Sorting:
    """Does for Flats what `paceline.core.paramserver.robust_mean` asks of numbers (its `Numerics`)."""

    def norm(self, v: Flat) -> float:
        return v.norm()

    def trimmed(self, vectors: Sequence[Flat], cut: int) -> Flat:
        """Returns in each coordinate the mean of what is left without the `cut` largest and the `cut` smallest."""
        tensors = [v.value() for v in vectors]
        n, length = len(tensors), len(tensors[0])
        out = spare(length, tensors[0].device)
        for at in range(0, length, BLOCK):
            block = torch.stack([tensor[at : at + BLOCK] for tensor in tensors])
            kept = block.sort(dim=0).values[cut : n - cut] if cut else block
            torch.mean(kept, dim=0, out=out[at : at + BLOCK])
        return Flat.wrap(out)
