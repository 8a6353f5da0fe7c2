"""Measurements that are repeated: when it is enough, and how far off the truth may be."""

from __future__ import annotations

import pytest

from paceline.core.adaptive.repeated_timing import ROUNDS_MAX, best_and_least, most_alike, repeated


def rounds_of(*seconds: float, each_s: float = 0.0) -> list[float]:
    """Of a measurement that gives these one after the other, `each_s` apart."""
    left, now = list(seconds), [0.0]

    def once() -> float:
        now[0] += each_s
        return left.pop(0)

    return repeated(once, lambda: now[0])


def test_it_is_repeated_until_the_shortest_is_confirmed() -> None:
    assert rounds_of(1.0, 1.05, 9.0) == [1.0, 1.05]
    assert rounds_of(16.0, 1.0, 16.0, 1.1, 9.0) == [16.0, 1.0, 16.0, 1.1]


def test_it_is_not_repeated_for_ever() -> None:
    assert len(rounds_of(*(2.0**-k for k in range(100)))) == ROUNDS_MAX
    assert rounds_of(9.0, 5.0, 1.0, each_s=1.5) == [9.0]  # what takes so long is noisy by a small share only


@pytest.mark.parametrize(
    ("rounds", "least"), [([2.0], 2.0), ([2.0, 4.0], 1.0), ([2.0, 2.0, 2.0, 9.0], 2.0), ([9.0, 2.0, 2.0, 4.0], 1.0)]
)
def test_the_more_the_next_ones_differ_the_further_off_the_truth_may_be(rounds: list[float], least: float) -> None:
    assert best_and_least(rounds) == (2.0, least)


@pytest.mark.parametrize(
    ("ranges", "values"),
    [
        ([(1.0, 2.0), (1.5, 1.6)], [1.5, 1.5]),
        ([(1.0, 2.0), (8.0, 9.0)], [2.0, 8.0]),
        ([(1.0, 1.0), (3.0, 5.0), (9.0, 9.0)], [1.0, 3.0, 9.0]),
        ([(1.0, 1.0), (2.0, 5.0), (9.0, 9.0)], [1.0, 3.0, 9.0]),
        ([(3.0, 3.0)], [3.0]),
    ],
)
def test_values_differ_as_little_as_their_ranges_allow(ranges: list[tuple[float, float]], values: list[float]) -> None:
    assert most_alike(ranges) == values
