"""PowerSGD takes the mean of gradients as a product of two thin matrices, and averages those instead.

    M_i <- gradient of each n x m tensor + what is left of earlier ones, on worker i
    P <- mean M_i Q;  P <- orthonormal columns of P;  Q <- mean M_i' P;  result P Q'                       (Algorithm 2)

The residual on worker i is what its own factors do not express, M_i - P Q_i' with Q_i = M_i' P. The paper's is M_i - P
Q', which has the same mean in its round, but brings each worker's difference from the others back. Where weights change
from round to round, as under ESync, that made runs diverge.

`rank` columns each, so r (n + m) numbers travel instead of n m: 100 times fewer for large matrices. Q is kept for the
next round, where it starts closer (the paper's warm start). Tensors of one dimension, and those that would not become
smaller, travel exactly within the first mean; of a convolution n is its output channels. As the means of factors are
means, any carrier carries them, collectives as well. Use it where all workers average: BSP without servers, local SGD
and its kin, ESync. Not for what goes to servers one by one: there is no mean to factor. The paper uses rank 1 to 4.
"""

from __future__ import annotations

import math

from paceline.codec.base import Codec, codec
from paceline.core.scheme import Paper, parameter


@codec(
    "powersgd",
    summary="means as products of thin matrices: up to 100 times smaller",
    paper=Paper(
        key="vogels2019powersgd",
        authors="Vogels, Thijs and Karimireddy, Sai Praneeth and Jaggi, Martin",
        title="PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization",
        venue="Advances in Neural Information Processing Systems (NeurIPS)",
        year=2019,
        url="https://arxiv.org/abs/1905.13727",
    ),
)
class PowerSGD(Codec):
    """Holds the rank; the factors are made where means are taken (`runtime/collectives/powersgd.py`)."""

    rank: int = parameter(2, "columns of the two matrices", low=1, high=1024)

    weights = "never"
    for_means = True

    def size(self, length: int, nth: int = 0) -> int:
        """Returns the bytes for a square matrix of `length` numbers, as an estimate: codecs do not know shapes."""
        return 4 * 2 * self.rank * math.isqrt(length)

    def warm_up(self) -> None:
        """Does nothing: no loop of this codec has to be compiled."""
