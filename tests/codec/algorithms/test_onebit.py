"""1bit: the bytes of MXNet, and what is decoded."""

from __future__ import annotations

import numpy as np

from paceline.codec import ResidualMemory, read
from tests.codec.algorithms.coding import decoded, encoded

GOLDEN = np.array([1, 0.6, -0.7, 0.2, 0.5, -0.5, 0.49, -2, 0, 0.3, 0.3, 0.3, -0.1, 0.1, -0.49, 0.75, 0.9], np.float32)


def test_1bit_makes_the_bytes_that_mxnet_makes() -> None:
    codec = read("1bit(threshold=0)")
    assert codec is not None
    assert encoded(codec, GOLDEN, ResidualMemory.of(len(GOLDEN))).tobytes().hex(" ") == "da 75 80 00"


def test_1bit_decodes_to_one_and_minus_one_whatever_the_threshold() -> None:
    codec = read("1bit(threshold=0.6)")
    assert codec is not None
    out = decoded(codec, encoded(codec, GOLDEN, ResidualMemory.of(len(GOLDEN))), len(GOLDEN))
    assert out.tolist() == [1.0 if x > np.float32(0.6) else -1.0 for x in GOLDEN]
