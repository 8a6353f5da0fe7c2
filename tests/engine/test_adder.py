"""The arithmetic of means, on Flats of every kind."""

from __future__ import annotations

import torch

from paceline.engine.adder import FlatAdder
from paceline.engine.vectors.chunked import Chunks
from paceline.engine.vectors.flat import Flat


def flat(*numbers: float) -> Flat:
    return Flat.copy_of(torch.tensor(numbers))


def test_two_means_are_blended_by_their_share_in_place_or_elsewhere() -> None:
    mine, theirs, out = flat(1.0, 2.0), flat(5.0, 6.0) * 2.0, flat(0.0, 0.0)
    FlatAdder().blend(mine, theirs, 0.25, out)
    assert out.tensor.tolist() == [3.25, 4.5]
    FlatAdder().blend(out, theirs, 1.0, out)
    assert out.tensor.tolist() == [10.0, 12.0]


def test_a_copy_over_itself_leaves_it() -> None:
    v = flat(1.0, 2.0)
    FlatAdder().copy(v[0:1], v[1:2])
    FlatAdder().copy(v, v)
    assert v.tensor.tolist() == [1.0, 1.0]


def test_a_vector_that_is_there_is_told_of_at_once_and_one_that_comes_when_it_has() -> None:
    told: list[str] = []
    FlatAdder().when(flat(1.0), lambda: told.append("there"))
    parts = Chunks([0, 2, 4], timeout_s=1.0)
    rope = parts.vector
    FlatAdder().when(rope[2:4], lambda: told.append("end"))
    FlatAdder().when(rope[0:2], lambda: told.append("begin"))
    parts.put(1, flat(3.0, 4.0))
    parts.put(0, flat(1.0, 2.0))
    assert told == ["there", "end", "begin"]
