"""Largest batches of workers, by rank."""

from __future__ import annotations

import pytest

from paceline.core.samples.batch_limits import bounded, own_batches, smaller, sum_of_batches


@pytest.mark.parametrize(
    ("limits", "own", "together"),
    [((), (), 192), ((96, 32), (96, 32), 128), ((0, 32), (96, 32), 128), ((96, 200), (), 192), ((32, 32), (), 64)],
)
def test_batches_are_the_loops_or_the_largest_of_a_worker(
    limits: tuple[int, ...], own: tuple[int, ...], together: int
) -> None:
    assert own_batches(96, limits) == own, "() where all are alike"
    assert sum_of_batches(96, limits, 2) == together


def test_zero_is_no_limit() -> None:
    assert (bounded(96, 0), bounded(96, 32), bounded(8, 32)) == (96, 32, 8)
    assert (smaller(0, 0), smaller(0, 4), smaller(4, 0), smaller(4, 3)) == (0, 4, 4, 3)
