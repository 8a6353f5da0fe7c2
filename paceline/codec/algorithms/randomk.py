"""Random-k sends k numbers drawn at random, and keeps a residual.

    r <- r + g;  bytes <- the values of r at k places drawn anew;  r <- 0 there         4 bytes a number sent, and 8

100 times smaller at one in a hundred: the places are not sent but drawn again by the receiver, one in each of k equal
stretches. The draw depends on `seed` and on the number of the exchange, so that workers of a synchronous scheme send
the same places. Cheaper to encode than topk and worse at what matters: use it to see what topk's choice is worth,
or where all numbers matter alike. Of weights it sends the differences to what the receiver holds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.codec.algorithms import indexed_values
from paceline.codec.base import Bytes, Codec, Floats, ResidualMemory, codec, whole
from paceline.core.scheme import parameter

SEED_BYTES = 8
"""Bytes of the seed that stands before the values; from it the receiver draws the same places."""


@codec(
    "randomk",
    summary="numbers drawn at random, and a residual: 100 times smaller at 1 %",
    paper=indexed_values.PAPER,
)
class RandomK(Codec):
    """Sends the numbers at k places drawn at random, and the seed of the draw in place of the places."""

    ratio: float = parameter(0.01, "share of the numbers that is sent", low=1e-6, high=0.5)
    seed: int = parameter(0, "seeds the draw", low=0, high=2**31)

    def size(self, length: int, nth: int = 0) -> int:
        """Returns the bytes: the seed, and a float32 for each number that is sent."""
        return SEED_BYTES + 4 * indexed_values.chosen(self.ratio, length)

    def encode(self, g: Floats, memory: ResidualMemory | None = None) -> Bytes | None:
        """Draws the places from seed and count, sends their values with the draw's seed, and clears
        them in the residual.
        """
        from paceline.codec.kernels import cpu

        if memory is None:
            memory = ResidualMemory.of(len(g))
        data = np.empty(self.size(len(g)), np.uint8)
        data[:SEED_BYTES].view(np.uint64)[0] = self.seed << 32 | memory.count & 0xFFFFFFFF
        memory.count += 1
        cpu.add(g, memory.left)
        values = data[SEED_BYTES:].view(np.float32)
        cpu.take(memory.left, self._places(data, len(g)), values)
        return data if np.isfinite(values).all() else None

    def decode(self, data: Bytes, out: Floats) -> None:
        """Writes the values to the places that the seed gives, and zeros elsewhere.

        Raises ValueError for bytes of another length.
        """
        whole(data, self.size(len(out)))
        out[:] = 0
        out[self._places(data, len(out))] = data[SEED_BYTES:].view(np.float32)

    def _places(self, data: Bytes, length: int) -> NDArray[np.int64]:
        """Returns the places that the seed at the head of `data` draws."""
        from paceline.codec.kernels import cpu

        where = np.empty(indexed_values.chosen(self.ratio, length), np.int64)
        cpu.draw(data[:SEED_BYTES].view(np.uint64)[0], length, where)
        return where
