"""Dealing out samples by speed."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.adaptive.batch_sizes import Balance, apportion
from paceline.core.adaptive.step_times import Estimates

speeds = st.lists(st.floats(0.01, 100), min_size=1, max_size=8).map(lambda v: dict(enumerate(v)))


def seconds(sizes: dict[int, int], v: dict[int, float]) -> float:
    return max(sizes[rank] / v[rank] for rank in v)


@given(speeds, st.integers(1, 500), st.integers(1, 20), st.integers(0, 60))
def test_all_is_dealt_out_within_the_bounds_wherever_they_allow(
    v: dict[int, float], total: int, low: int, more: int
) -> None:
    high = low + more
    sizes = apportion(total, v, low, dict.fromkeys(v, high))
    assert sizes.keys() == v.keys()
    assert all(low <= size <= high for size in sizes.values())
    assert sum(sizes.values()) == max(low * len(v), min(total, high * len(v)))


@given(speeds, st.integers(1, 500), st.integers(1, 20), st.data())
def test_bounds_are_each_workers_own(v: dict[int, float], total: int, low: int, data: st.DataObject) -> None:
    high = {rank: data.draw(st.integers(1, 200)) for rank in v if data.draw(st.booleans())}
    sizes = apportion(total, v, low, high)
    least = {rank: min(low, high.get(rank, low)) for rank in v}
    assert all(least[rank] <= size <= high.get(rank, size) for rank, size in sizes.items())
    most = sum(high.values()) if high.keys() == v.keys() else total
    assert sum(sizes.values()) == max(sum(least.values()), min(total, most))


@given(st.lists(st.floats(0.5, 4), min_size=1, max_size=3).map(lambda v: dict(enumerate(v))), st.integers(3, 9))
def test_no_other_whole_numbers_are_done_sooner(v: dict[int, float], total: int) -> None:
    others = itertools.product(range(1, total + 1), repeat=len(v))
    best = min(seconds(dict(enumerate(sizes)), v) for sizes in others if sum(sizes) == total)
    assert seconds(apportion(total, v, 1, {}), v) <= best * (1 + 1e-9)


def balance(total: int, *, hysteresis: float = 0.1, measured: tuple[float, ...] = (), high: int = 0) -> Balance:
    return Balance(Estimates(range(2)), measured, total, 1, dict.fromkeys(range(2), high) if high else {}, hysteresis)


def settle(b: Balance, *v: float) -> list[tuple[int, int, str]]:
    for rank, speed in enumerate(v):
        b.v.put(rank, speed)
    return list(b.settle(range(2)))


def test_sizes_follow_the_speeds_and_say_why() -> None:
    b = balance(30)
    assert settle(b, 20.0, 10.0) == [
        (0, 20, "it makes 20.0 of 30.0 samples/s"),
        (1, 10, "it makes 10.0 of 30.0 samples/s"),
    ]


def test_sizes_stay_until_others_save_more_than_the_hysteresis() -> None:
    b = balance(100)
    settle(b, 50.0, 50.0)
    assert settle(b, 54.0, 46.0) == []  # 1.00 s instead of 1.09 s: a saving of 8 %
    assert b.sizes == {0: 50, 1: 50}
    assert settle(b, 56.0, 44.0) != []
    assert b.sizes == {0: 56, 1: 44}


def test_before_anybody_is_timed_what_was_measured_beforehand_tells() -> None:
    b = balance(30, measured=(0.1, 0.2))
    settle(b)
    assert b.sizes == {0: 20, 1: 10}


def test_without_any_measurement_all_are_alike_and_a_newcomer_counts_as_the_mean() -> None:
    b = balance(30)
    settle(b)
    assert b.sizes == {0: 15, 1: 15}
    settle(b, 7.0)
    assert b.sizes == {0: 15, 1: 15}
