"""EF-signSGD: a sign each, the mean magnitude of its block, and the rest kept for later."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.codec.algorithms.sign import Sign
from paceline.codec.base import ResidualMemory
from tests.codec.algorithms.coding import decoded, encoded

G = np.array([1, -1, 2, -2, 3, -3, 4, -4, 0.5, -0.5], np.float32)


def test_every_block_has_the_mean_magnitude_of_its_own_numbers() -> None:
    codec = Sign(block=8)
    assert decoded(codec, encoded(codec, G), 10).tolist() == [2.5, -2.5] * 4 + [0.5, -0.5]


def test_what_the_sign_leaves_out_is_added_to_the_next_gradient() -> None:
    codec, memory = Sign(block=8), ResidualMemory.of(10)
    first = decoded(codec, encoded(codec, G, memory), 10)
    assert memory.left.tolist() == (G - first).tolist()
    second = decoded(codec, encoded(codec, np.zeros(10, np.float32), memory), 10)
    assert np.sign(second[:8]).tolist() == np.sign(G - first)[:8].tolist()


def test_it_takes_a_bit_for_a_number_and_four_bytes_for_a_block() -> None:
    assert [Sign(block=16).size(length) for length in (1, 16, 17, 33)] == [4 + 1, 4 + 2, 8 + 3, 12 + 5]


def test_a_block_is_whole_bytes() -> None:
    with pytest.raises(ValueError, match="multiple of 8"):
        Sign(block=12)
