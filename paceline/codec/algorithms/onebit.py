"""One bit says whether a number is above a threshold t, exactly as in MXNet's KVStore.

    r <- r + g
    1  where r > t:   decoded +1,  r <- r - 1
    0  elsewhere:     decoded -1,  r <- r + 1

32 times smaller. Eight numbers to a byte, the first in the highest bit; bytes in fours, the last filled with zeros.
What is sent is +1 or -1, neither t nor the mean: every number moves by a whole learning rate in every step. Use it to
reproduce runs of MXNet, with a small learning rate; `sign` is the one to train with. Refused for weights.
"""

from __future__ import annotations

import numpy as np

from paceline.codec.base import Bytes, Codec, Floats, ResidualMemory, codec, whole
from paceline.core.scheme import Paper, parameter


@codec(
    "1bit",
    summary="MXNet's: +1 or -1 and a residual: 32 times smaller",
    paper=Paper(
        key="seide2014onebit",
        authors="Seide, Frank and Fu, Hao and Droppo, Jasha and Li, Gang and Yu, Dong",
        title="1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of Speech "
        "DNNs",
        venue="Interspeech",
        year=2014,
    ),
)
class OneBit(Codec):
    """Sends +1 or -1 for each number, by whether g + residual is above the threshold."""

    threshold: float = parameter(0.5, "t: above it a residual is sent as +1; 0 or less is allowed")

    weights = "never"

    def size(self, length: int, nth: int = 0) -> int:
        """Returns the bytes: a bit for each number, in whole words of 32, as MXNet has it."""
        return 4 * -(-length // 32)

    def encode(self, g: Floats, memory: ResidualMemory | None = None) -> Bytes | None:
        """Returns the bits of g + residual, whose rest stays in the residual; None if a number is not finite."""
        from paceline.codec.kernels import cpu

        r = memory.left if memory else np.zeros(len(g), np.float32)
        data = np.zeros(self.size(len(g)), np.uint8)
        return data if cpu.encode_1bit(g, r, np.float32(self.threshold), data) else None

    def decode(self, data: Bytes, out: Floats) -> None:
        """Writes +1 and -1. Raises ValueError for bytes of another length."""
        from paceline.codec.kernels import cpu

        whole(data, self.size(len(out)))
        cpu.decode_sign(np.ones(1, np.float32), data, max(8, len(out)), out)
