"""Half precision sends every number as an IEEE binary16.

    bytes <- half(g)                                                    2 bytes a number, 2 times smaller

Eleven significant bits, from 6e-5 (with fewer bits from 6e-8) to 65504; what is larger becomes infinite, and what is
smaller becomes zero and is lost: there is no residual. Use it for gradients and weights of ordinary size. Where
gradients are tiny or losses are scaled up, bf16 has the range of float32. After Micikevicius et al., Mixed Precision
Training, ICLR 2018, who send and store in half precision what is summed in single.
"""

from __future__ import annotations

from paceline.codec.base import codec
from paceline.codec.kernels.cast16 import Rounded
from paceline.core.scheme import Paper


@codec(
    "fp16",
    summary="half precision, for gradients and weights: 2 times smaller",
    paper=Paper(
        key="micikevicius2018mixed",
        authors="Micikevicius, Paulius and Narang, Sharan and Alben, Jonah and Diamos, Gregory and others",
        title="Mixed Precision Training",
        venue="International Conference on Learning Representations (ICLR)",
        year=2018,
        url="https://arxiv.org/abs/1710.03740",
    ),
)
class Half(Rounded):
    """Sends IEEE binary16: 11 significant bits; numbers of 65,520 and more become infinite."""

    adds_up = "float16"
