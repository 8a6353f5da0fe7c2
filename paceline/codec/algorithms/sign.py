"""EF-signSGD sends the sign with error feedback, scaled by the mean magnitude.

    r <- r + g;  s <- mean |r| over each block;  bytes <- sign(r), s;  r <- r - s sign(r)    a bit, and 4 bytes a block

32 times smaller. The paper has one s for each layer; here it is one for each `block` numbers. Use it for gradients and
deltas where the network is the bottleneck; of weights it encodes the difference to what the receiver holds. Without
the residual sign methods may not converge at all (the paper's Section 3), so there is no way to switch it off.
"""

from __future__ import annotations

import numpy as np

from paceline.codec.base import Bytes, Codec, Floats, ResidualMemory, codec, whole
from paceline.core.scheme import Paper, parameter


def _whole_bytes(block: int) -> None:
    """Raises ValueError for a block whose bits do not fill whole bytes."""
    if block % 8:
        raise ValueError("must be a multiple of 8")


@codec(
    "sign",
    summary="signs with error feedback, scaled by the mean magnitude: 32 times smaller",
    paper=Paper(
        key="karimireddy2019error",
        authors="Karimireddy, Sai Praneeth and Rebjock, Quentin and Stich, Sebastian U. and Jaggi, Martin",
        title="Error Feedback Fixes SignSGD and other Gradient Compression Schemes",
        venue="International Conference on Machine Learning (ICML)",
        year=2019,
        url="https://arxiv.org/abs/1901.09847",
    ),
)
class Sign(Codec):
    """Sends a bit for each number, and a scale for each block: the mean magnitude."""

    block: int = parameter(4096, "numbers that share a scale", low=8, high=1 << 30, check=_whole_bytes)

    def size(self, length: int, nth: int = 0) -> int:
        """Returns the bytes: a float32 scale for each block, and a bit for each number."""
        return 4 * -(-length // self.block) + -(-length // 8)

    def encode(self, g: Floats, memory: ResidualMemory | None = None) -> Bytes | None:
        """Returns scales and signs of g + residual, whose rest stays in the residual; None if a number is not
        finite.
        """
        from paceline.codec.kernels import cpu

        r = memory.left if memory else np.zeros(len(g), np.float32)
        data = np.empty(self.size(len(g)), np.uint8)
        scales, bits = self._parts(data, len(g))
        return data if cpu.encode_sign(g, r, self.block, scales, bits) else None

    def decode(self, data: Bytes, out: Floats) -> None:
        """Writes scale or -scale for each number. Raises ValueError for bytes of another length."""
        from paceline.codec.kernels import cpu

        whole(data, self.size(len(out)))
        scales, bits = self._parts(data, len(out))
        cpu.decode_sign(scales, bits, self.block, out)

    def _parts(self, data: Bytes, length: int) -> tuple[Floats, Bytes]:
        """Returns views of `data`: the scales, which come first, and the signs."""
        scales = 4 * -(-length // self.block)
        return data[:scales].view(np.float32), data[scales:]
