"""Rows of a key by their numbers, and gradients of some rows only."""

from __future__ import annotations

import pytest
import torch

from paceline.engine.vectors.flat import Flat
from paceline.runtime.kvstore.rows import gradient, numbers_of, rows_of, table_of, whole

W = torch.arange(12, dtype=torch.float32)


def rows(*numbers: int) -> Flat:
    return numbers_of(torch.tensor(numbers, dtype=torch.int64))


def test_a_gradient_of_some_rows_is_zero_elsewhere() -> None:
    g = gradient(4, 3, torch.tensor([1, 3]), torch.ones(2, 3))
    assert whole(g).value().view(4, 3).sum(1).tolist() == [0, 3, 0, 3]


def test_rows_come_in_the_order_asked_for_also_twice() -> None:
    found = rows_of(Flat.copy_of(W), rows(3, 0, 3), width=3)
    assert found.value().tolist() == [9, 10, 11, 0, 1, 2, 9, 10, 11]


def test_a_table_that_changed_by_rows_gives_the_same_as_a_plain_vector() -> None:
    plain, g = Flat.copy_of(W), gradient(4, 3, torch.tensor([2]), torch.full((1, 3), 5.0))
    table = table_of(plain, g) + g
    assert torch.equal(whole(table).value(), (plain + whole(g)).value())
    assert torch.equal(rows_of(table, rows(2, 1), 3).value(), rows_of(whole(table), rows(2, 1), 3).value())


def test_whole_gradients_leave_weights_a_plain_vector() -> None:
    plain = Flat.copy_of(W)
    assert table_of(plain, plain) is plain


@pytest.mark.parametrize(
    ("numbers", "width", "words"),
    [
        ((4,), 3, "its rows go from 0 to 3"),
        ((-1,), 3, "its rows go from 0 to 3"),
        ((0,), 5, "it has no rows of 5 elements"),
        ((0,), 0, "it has no rows of 0 elements"),
    ],
)
def test_rows_that_it_does_not_have_are_refused(numbers: tuple[int, ...], width: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rows_of(Flat.copy_of(W), rows(*numbers), width)
