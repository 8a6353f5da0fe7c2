"""int8: how far a number may be off, at every magnitude."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.codec import ResidualMemory, lookup
from tests.codec.algorithms.coding import decoded, encoded


def test_int8_is_off_by_half_a_scale_at_most_whatever_other_blocks_hold() -> None:
    g = np.random.default_rng(1).standard_normal(1024).astype(np.float32)
    g[:256] *= 1e6
    codec = lookup("int8")()
    off = np.abs(decoded(codec, encoded(codec, g), len(g)) - g)
    assert (off[256:] <= np.abs(g[256:]).max() / 253).all()


@pytest.mark.parametrize("magnitude", [1e-45, 1e-39, 1e-38, 3e38])
def test_int8_stands_the_smallest_and_the_largest_numbers(magnitude: float) -> None:
    g = np.array([magnitude, -magnitude, 0, magnitude / 3], np.float32)
    codec, memory = lookup("int8")(), ResidualMemory.of(4)
    out = decoded(codec, encoded(codec, g, memory), 4)
    assert np.abs(out - g).max() <= magnitude
