"""Top-k sends the k largest numbers and keeps a residual.

    r <- r + g;  bytes <- places and values of the k largest |r|;  r <- 0 there            8 bytes for each number sent

50 times smaller at the usual one in a hundred. Exact: of equal magnitudes the first are taken. Use it for gradients and
deltas on slow networks, with as small a ratio as still learns; of weights it sends the largest differences to what the
receiver holds, which therefore lags behind in most places. The residual delays most of a gradient by many steps, so it
adds to the staleness of asynchronous schemes.
"""

from __future__ import annotations

from paceline.codec.algorithms import indexed_values
from paceline.codec.base import Bytes, Codec, Floats, ResidualMemory, codec
from paceline.core.scheme import parameter


@codec(
    "topk",
    summary="the largest numbers only, and a residual: 50 times smaller at 1 %",
    paper=indexed_values.PAPER,
)
class TopK(Codec):
    """Sends the k numbers of the largest magnitude, each with its place."""

    ratio: float = parameter(0.01, "share of the numbers that is sent", low=1e-6, high=0.5)

    def size(self, length: int, nth: int = 0) -> int:
        """Returns the bytes: a place and a value, 4 bytes each, for each number that is sent."""
        return 8 * indexed_values.chosen(self.ratio, length)

    def encode(self, g: Floats, memory: ResidualMemory | None = None) -> Bytes | None:
        """Returns the largest numbers of g + residual, in which they become zero; None if a number is not finite."""
        from paceline.codec.kernels import cpu

        if memory is None:
            memory = ResidualMemory.of(len(g))
        cpu.add(g, memory.left)
        return indexed_values.largest(memory.left, indexed_values.chosen(self.ratio, len(g)))

    def decode(self, data: Bytes, out: Floats) -> None:
        """Writes the values to their places and zeros elsewhere. Raises ValueError for bytes that are none of these."""
        indexed_values.placed(data, out)
