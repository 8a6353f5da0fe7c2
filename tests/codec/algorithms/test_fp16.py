"""fp16: the bytes of IEEE binary16, and what has no room in them."""

from __future__ import annotations

import numpy as np

from paceline.codec.base import lookup
from tests.codec.algorithms.coding import decoded, encoded

FINEST = 2.0**-24
"""The smallest number above zero, which has one significant bit."""


def test_its_bytes_are_those_of_ieee_half_precision() -> None:
    g = np.random.default_rng(0).standard_normal(300).astype(np.float32)
    assert encoded(lookup("fp16")(), g).tobytes() == g.astype(np.float16).tobytes()


def test_what_is_too_large_becomes_infinite_and_what_is_too_small_zero() -> None:
    g = np.array([65504, 65519, 65520, -1e6, FINEST, FINEST / 2, -FINEST / 4], np.float32)
    codec = lookup("fp16")()
    assert decoded(codec, encoded(codec, g), len(g)).tolist() == [65504, 65504, np.inf, -np.inf, FINEST, 0, 0]
