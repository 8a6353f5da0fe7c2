"""Numbers of an optimizer: counted from a slice's beginning, in a checkpoint from the model's."""

from __future__ import annotations

import pytest

from paceline.core.sharding import lay_out
from paceline.runtime.checkpointing.slice_numbers import of_model, of_slice, tensors_in

LENGTHS = (4, 2, 4)
HALVES = lay_out(10, 2)  # 0 to 5 and 5 to 10: the third tensor is the first that begins in the second


def test_a_tensor_belongs_to_the_slice_in_which_it_begins() -> None:
    assert tensors_in(slice(0, 5), LENGTHS) == (0, 2)
    assert tensors_in(slice(5, 10), LENGTHS) == (2, 1)
    assert tensors_in(slice(1, 4), LENGTHS) == (1, 0)


def test_numbers_of_tensors_do_not_write_over_one_another_and_come_back() -> None:
    of_each = [{"of 0/step": 3.0, "of 1/step": 4.0}, {"of 0/step": 5.0}]
    whole = of_model({"lr": 0.1}, of_each, HALVES, LENGTHS)
    assert whole == {"lr": 0.1, "of 0/step": 3.0, "of 1/step": 4.0, "of 2/step": 5.0}
    for own, part in zip(of_each, HALVES.slices, strict=True):
        assert of_slice(whole, part, LENGTHS) == {"lr": 0.1, **own}


def test_pieces_are_counted_in_numbers_of_the_model() -> None:
    of_each = [{"step from 0": 1.0, "step from 3": 2.0}, {"step": 7.0}]  # the second slice is a single piece
    whole = of_model({}, of_each, HALVES, LENGTHS)
    assert whole == {"step from 0": 1.0, "step from 3": 2.0, "step from 5": 7.0}
    assert of_slice(whole, slice(0, 5), LENGTHS) == {"step from 0": 1.0, "step from 3": 2.0}
    assert of_slice(whole, slice(5, 10), LENGTHS) == {"step from 0": 7.0}


@pytest.mark.parametrize(
    ("part", "found"),
    [
        (slice(2, 4), {"step from 0": 1.0, "step from 1": 2.0}),  # begins within the first piece
        (slice(6, 8), {"step from 0": 2.0}),
        (slice(3, 8), {"step from 0": 2.0}),
    ],
)
def test_slices_that_are_cut_elsewhere_have_the_pieces_that_they_cover(part: slice, found: dict[str, float]) -> None:
    assert of_slice({"step from 0": 1.0, "step from 3": 2.0}, part, LENGTHS) == found
