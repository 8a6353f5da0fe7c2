"""Rounding to 16 bits is off by half a last place at most."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.codec import lookup
from tests.codec.algorithms.coding import decoded, encoded


@pytest.mark.parametrize(("name", "relative"), [("fp16", 2**-11), ("bf16", 2**-8)])
def test_sixteen_bits_are_off_by_half_a_last_place_at_most(name: str, relative: float) -> None:
    g = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
    codec = lookup(name)()
    assert (np.abs(decoded(codec, encoded(codec, g), len(g)) - g) <= np.abs(g) * relative + 1e-7).all()
