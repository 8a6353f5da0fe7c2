"""Small tensors are found in every slice."""

from __future__ import annotations

from paceline.codec.small_tensors import parts_of


def test_small_tensors_are_found_in_every_slice_and_neighbours_are_one() -> None:
    tensors, slices = (10, 2, 3, 20, 4), (slice(0, 13), slice(13, 39))
    assert parts_of(tensors, slices, 5) == {0: (slice(10, 13),), 1: (slice(0, 2), slice(22, 26))}
    assert parts_of(tensors, slices, 0) == {}
