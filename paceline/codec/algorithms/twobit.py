"""Two bits say whether a number has reached a threshold t or -t, exactly as in MXNet's KVStore.

    r <- r + g
    11  where r >= t:   decoded +t,  r <- r - t
    10  where r <= -t:  decoded -t,  r <- r + t
    00  elsewhere:      decoded 0

16 times smaller. Four numbers to a byte, the first in the highest bits; bytes in fours, the last filled with zeros.
No more than t leaves a number's residual in a step, so that larger gradients drain slowly: choose t near the size of
ordinary gradients (they differ by network and loss; MXNet's 0.5 suits sums over a batch, means want far less).
A fixed threshold says nothing about weights, so it is refused for them.
"""

from __future__ import annotations

import numpy as np

from paceline.codec.base import Bytes, Codec, Floats, ResidualMemory, codec, whole
from paceline.core.scheme import Paper, parameter


@codec(
    "2bit",
    summary="MXNet's: +t, 0 or -t and a residual: 16 times smaller",
    paper=Paper(
        key="strom2015scalable",
        authors="Strom, Nikko",
        title="Scalable Distributed DNN Training Using Commodity GPU Cloud Computing",
        venue="Interspeech",
        year=2015,
    ),
)
class TwoBit(Codec):
    """Sends t, -t or 0 for each number, by where g + residual lies."""

    threshold: float = parameter(0.5, "t: what is sent where a residual reaches it", low=1e-30)

    weights = "never"

    def size(self, length: int, nth: int = 0) -> int:
        """Returns the bytes: two bits for each number, in whole words of 32 bits, as MXNet has it."""
        return 4 * -(-length // 16)

    def encode(self, g: Floats, memory: ResidualMemory | None = None) -> Bytes | None:
        """Returns the codes of g + residual, whose rest stays in the residual; None if a number is not finite."""
        from paceline.codec.kernels import cpu

        r = memory.left if memory else np.zeros(len(g), np.float32)
        data = np.zeros(self.size(len(g)), np.uint8)
        return data if cpu.encode_2bit(g, r, np.float32(self.threshold), data) else None

    def decode(self, data: Bytes, out: Floats) -> None:
        """Writes t, -t and 0. Raises ValueError for bytes of another length."""
        from paceline.codec.kernels import cpu

        whole(data, self.size(len(out)))
        cpu.decode_2bit(data, np.float32(self.threshold), out)
