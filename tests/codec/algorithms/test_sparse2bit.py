"""SparseLoCo's compression: chunks, two magnitudes, and a residual that fades."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.codec import ResidualMemory, lookup
from tests.codec.algorithms.coding import decoded, encoded


def test_every_chunk_sends_as_many_of_its_own_numbers() -> None:
    codec, g = lookup("sparse2bit")(ratio=1 / 1024), np.random.default_rng(1).normal(size=3 * 4096).astype(np.float32)
    sent = decoded(codec, encoded(codec, g), len(g)).reshape(3, 4096)
    assert (sent != 0).sum(axis=1).tolist() == [4, 4, 4]
    for row, own in zip(sent, g.reshape(3, 4096), strict=True):
        assert set(np.flatnonzero(row)) == set(np.argsort(-np.abs(own))[:4])


def test_a_number_is_its_sign_and_one_of_two_magnitudes_which_are_means() -> None:
    codec, g = lookup("sparse2bit")(ratio=0.5), np.array([8, -6, 2, 1, 0.5, 0, 0, 0], np.float32)
    assert decoded(codec, encoded(codec, g), 8).tolist() == [7, -7, 1.5, 1.5, 0, 0, 0, 0]


def test_what_is_zero_stays_zero_and_takes_no_part_in_the_means() -> None:
    codec, memory = lookup("sparse2bit")(ratio=0.5), ResidualMemory.of(12)
    g = np.array([0, 0, 0, -3, 0, 0, 0, 1, 0, 0, 0, 0], np.float32)
    assert decoded(codec, encoded(codec, g, memory), 12).tolist() == [0, 0, 0, -3, 0, 0, 0, 1, 0, 0, 0, 0]
    assert not memory.left.any()
    assert not decoded(codec, encoded(codec, np.zeros(12, np.float32)), 12).any()


def test_what_is_left_out_fades_and_what_comes_again_adds_up() -> None:
    codec, memory = lookup("sparse2bit")(ratio=0.25, decay=0.5), ResidualMemory.of(4)
    for _ in range(20):
        encoded(codec, np.array([4, 1, 0, 0], np.float32), memory)
    assert memory.left[1] == pytest.approx(2), "1 + 1/2 + 1/4 + ..."


def test_it_is_110_times_smaller() -> None:
    assert 4 * 4096 / lookup("sparse2bit")().size(4096) > 110


def test_a_place_outside_the_vector_is_refused() -> None:
    codec = lookup("sparse2bit")(ratio=0.5)
    data = encoded(codec, np.arange(4, dtype=np.float32))
    data[:2] = 255
    with pytest.raises(ValueError, match="outside 4"):
        codec.decode(data, np.zeros(4, np.float32))
