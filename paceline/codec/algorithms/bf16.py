"""Bfloat16 keeps the leading 16 bits of every number, rounded to the nearest.

    bytes <- bfloat16(g)                                                2 bytes a number, 2 times smaller

Eight significant bits with the range of float32: nothing overflows and nothing small vanishes. Use it for gradients,
the more so where fp16's range is too narrow. Weights lose more than in fp16: near 1, steps below 0.004
do not show. There is no residual.

After Kalamkar et al., A Study of BFLOAT16 for Deep Learning Training, arXiv 1905.12322.
"""

from __future__ import annotations

from paceline.codec.base import codec
from paceline.codec.kernels.cast16 import Rounded
from paceline.core.scheme import Paper


@codec(
    "bf16",
    summary="bfloat16, the range of float32 in 16 bits: 2 times smaller",
    paper=Paper(
        key="kalamkar2019study",
        authors="Kalamkar, Dhiraj and Mudigere, Dheevatsa and Mellempudi, Naveen and Das, Dipankar and others",
        title="A Study of BFLOAT16 for Deep Learning Training",
        venue="arXiv 1905.12322",
        year=2019,
        url="https://arxiv.org/abs/1905.12322",
    ),
)
class Brain(Rounded):
    """Sends bfloat16: the exponent of a float32, and 8 significant bits."""

    adds_up = "bfloat16"
