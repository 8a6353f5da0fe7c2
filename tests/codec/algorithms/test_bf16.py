"""bf16: the upper half of a float32, rounded to the nearest, with all of its range."""

from __future__ import annotations

import numpy as np

from paceline.codec.base import lookup
from tests.codec.algorithms.coding import decoded, encoded


def test_its_bytes_are_the_upper_half_of_a_float32_where_the_lower_is_zero() -> None:
    upper = np.array([0x3F80, 0xC000, 0x0080, 0x7F7F, 0xFF7F], np.uint16)
    g = (upper.astype(np.uint32) << 16).view(np.float32)
    assert encoded(lookup("bf16")(), g).tobytes() == upper.tobytes()


def test_halves_are_rounded_to_even() -> None:
    """Near 1 the numbers are 2 ** -7 apart."""
    g = np.array([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8], np.float32)
    codec = lookup("bf16")()
    assert decoded(codec, encoded(codec, g), 3).tolist() == [1.0, 1 + 2**-6, -1.0]


def test_the_smallest_and_the_largest_magnitudes_stay_finite_and_above_zero() -> None:
    g = np.array([1e-38, 1e38, -1e-38, -1e38], np.float32)
    codec = lookup("bf16")()
    back = decoded(codec, encoded(codec, g), 4)
    assert np.isfinite(back).all()
    assert (np.sign(back) == np.sign(g)).all()
