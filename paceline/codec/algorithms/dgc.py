"""Deep gradient compression sends the largest numbers, with momentum correction and a warm-up.

    u <- m u + g;  r <- r + u;  bytes <- places and values of the k largest |r|;  u, r <- 0 there          (Algorithm 4)

k starts at a quarter and shrinks exponentially to `ratio` over the first `warmup` exchanges, as in the paper, whose
warm-up takes 4 epochs (Section 3.3). The momentum m is applied before numbers are chosen; otherwise a number that is
sent late would count without it. Hence the optimizer must have none (`--momentum 0`), or m must be 0, which makes it
`topk` with a warm-up. Clipping of gradients (Section 3.2) is left to the training loop. Use it where topk loses
accuracy at high compression. The worker keeps u and r: twice the gradient. It is refused for weights, and of no use for
the deltas of schemes that train locally, whose momentum is in the local steps.
"""

from __future__ import annotations

import numpy as np

from paceline.codec.algorithms import indexed_values
from paceline.codec.base import Bytes, Codec, Floats, ResidualMemory, codec
from paceline.core.errors import ConfigError
from paceline.core.scheme import Paper, parameter

FIRST = 0.25
"""The share of the numbers that is sent at the beginning of the warm-up."""


@codec(
    "dgc",
    summary="top-k with momentum correction and warm-up: 500 times smaller",
    paper=Paper(
        key="lin2018deep",
        authors="Lin, Yujun and Han, Song and Mao, Huizi and Wang, Yu and Dally, William J.",
        title="Deep Gradient Compression: Reducing the Communication Bandwidth for Distributed Training",
        venue="International Conference on Learning Representations (ICLR)",
        year=2018,
        url="https://arxiv.org/abs/1712.01887",
    ),
)
class DGC(Codec):
    ratio: float = parameter(0.001, "share of the numbers that is sent in the end", low=1e-6, high=FIRST)
    momentum: float = parameter(0.9, "m: momentum, in place of the optimizer's", low=0.0, high=0.9999)
    warmup: int = parameter(100, "exchanges over which the share shrinks from a quarter", low=0)

    weights = "never"
    gradients_only = True

    def check(self, momentum: float, *, local: bool) -> None:
        """Raises ConfigError where the momentum would count twice, or would correct what has none."""
        if local and self.momentum:
            raise ConfigError(
                "codec dgc corrects the momentum of gradients, and this scheme sends what local steps changed: take "
                "topk, or write dgc(momentum=0)"
            )
        if momentum and self.momentum:
            raise ConfigError(
                f"codec dgc has a momentum of its own, and --momentum {momentum:g} would count twice: give "
                "--momentum 0, or write dgc(momentum=0)"
            )

    def chosen(self, length: int, nth: int) -> int:
        """Returns how many numbers of `length` the `nth` exchange sends, from 0."""
        share = FIRST * (self.ratio / FIRST) ** (nth / self.warmup) if nth < self.warmup else self.ratio
        return indexed_values.chosen(share, length)

    def size(self, length: int, nth: int = 0) -> int:
        """Returns the bytes of the n-th exchange: a place and a value, 4 bytes each, for each number that is sent."""
        return 8 * self.chosen(length, nth)

    def encode(self, g: Floats, memory: ResidualMemory | None = None) -> Bytes | None:
        """Encodes by Algorithm 4; without a memory it is top-k of `g` alone."""
        from paceline.codec.kernels import cpu

        if memory is None:
            memory = ResidualMemory.of(len(g))
        k = self.chosen(len(g), memory.count)
        memory.count += 1
        # Without momentum u is g, so there is nothing to keep for it.
        if not self.momentum:
            cpu.add(g, memory.left)
            return indexed_values.largest(memory.left, k)
        if "u" not in memory.more:
            memory.more["u"] = np.zeros(len(g), np.float32)
        u = memory.more["u"]
        cpu.add_with_momentum(g, np.float32(self.momentum), u, memory.left)
        data = indexed_values.largest(memory.left, k)
        if data is not None:
            cpu.clear(indexed_values.places(data), u)
        return data

    def decode(self, data: Bytes, out: Floats) -> None:
        """Writes the values to their places and zeros elsewhere. Raises ValueError for bytes that are none of these."""
        indexed_values.placed(data, out)
