"""2bit: the bytes of MXNet, the threshold, and what is kept."""

from __future__ import annotations

import numpy as np

from paceline.codec import ResidualMemory, read
from tests.codec.algorithms.coding import decoded, encoded

GOLDEN = np.array([1, 0.6, -0.7, 0.2, 0.5, -0.5, 0.49, -2, 0, 0.3, 0.3, 0.3, -0.1, 0.1, -0.49, 0.75, 0.9], np.float32)


def test_2bit_makes_the_bytes_that_mxnet_makes() -> None:
    codec, memory = read("2bit(threshold=0.5)"), ResidualMemory.of(len(GOLDEN))
    assert codec is not None
    assert encoded(codec, GOLDEN, memory).tobytes().hex(" ") == "f8 e2 00 03 c0 00 00 00"
    assert encoded(codec, GOLDEN, memory).tobytes().hex(" ") == "f8 ee 3f 0b c0 00 00 00"


def test_2bit_decodes_to_the_threshold_and_keeps_the_rest() -> None:
    codec, memory = read("2bit(threshold=0.5)"), ResidualMemory.of(len(GOLDEN))
    assert codec is not None
    out = decoded(codec, encoded(codec, GOLDEN, memory), len(GOLDEN))
    assert out.tolist() == [0.5, 0.5, -0.5, 0, 0.5, -0.5, 0, -0.5, 0, 0, 0, 0, 0, 0, 0, 0.5, 0.5]
    assert memory.left.tolist() == (GOLDEN - out).tolist()
