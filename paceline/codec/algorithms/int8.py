"""Eight bits stand for a number, with a scale for each block.

    r <- r + g;  s <- max |r| / 127 over each block;  q <- round(r / s);  r <- r - s q     1 byte a number and 4 a block

Nearly 4 times smaller. An outlier costs precision only within its own block. Use it for gradients and for weights
(encoded as they are, without a residual); with `keep=false` gradients keep none either, which saves the memory
of a gradient. After Dettmers, 8-Bit Approximations for Parallelism in Deep Learning, ICLR 2016, with linear codes and
blocks as in his later work on block-wise quantization (ICLR 2022).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.codec.base import Bytes, Codec, Floats, ResidualMemory, codec, whole
from paceline.core.scheme import Paper, parameter


@codec(
    "int8",
    summary="8 bits and a scale for each block: nearly 4 times smaller",
    paper=Paper(
        key="dettmers2016approximations",
        authors="Dettmers, Tim",
        title="8-Bit Approximations for Parallelism in Deep Learning",
        venue="International Conference on Learning Representations (ICLR)",
        year=2016,
        url="https://arxiv.org/abs/1511.04561",
    ),
)
class Int8(Codec):
    """Sends a byte for each number, and a scale for each block: the largest magnitude of the block is 127."""

    block: int = parameter(256, "numbers that share a scale", low=16, high=1 << 20)
    keep: bool = parameter(True, "keep a residual: what rounding takes away is sent later")

    weights = "as they are"

    @property
    def feedback(self) -> bool:
        """Returns True if a residual is kept."""
        return self.keep

    def size(self, length: int, nth: int = 0) -> int:
        """Returns the bytes: one for each number, and a float32 scale for each block."""
        return length + 4 * -(-length // self.block)

    def encode(self, g: Floats, memory: ResidualMemory | None = None) -> Bytes | None:
        """Returns scales and codes of g + residual, whose rest stays in the residual; None if a number is not
        finite.
        """
        from paceline.codec.kernels import cpu

        r = memory.left if memory else np.zeros(len(g), np.float32)
        data = np.empty(self.size(len(g)), np.uint8)
        scales, codes = self._parts(data, len(g))
        return data if cpu.encode_int8(g, r, self.block, scales, codes) else None

    def decode(self, data: Bytes, out: Floats) -> None:
        """Writes code times scale for each number. Raises ValueError for bytes of another length."""
        from paceline.codec.kernels import cpu

        whole(data, self.size(len(out)))
        cpu.decode_int8(*self._parts(data, len(out)), self.block, out)

    def _parts(self, data: Bytes, length: int) -> tuple[Floats, NDArray[np.int8]]:
        """Returns views of `data`: the scales, which come first, and the codes."""
        scales = 4 * -(-length // self.block)
        return data[:scales].view(np.float32), data[scales:].view(np.int8)
