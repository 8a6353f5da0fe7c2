"""Members end with the exact weighted mean, in whatever order messages come."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest

from tests.core.collective.every_schedule import TELLING, schedules
from tests.core.collective.members import average

UP_TO = range(2, 65)


SOME = [2, 3, 5, 8, 13, 22]


@pytest.mark.parametrize("n", UP_TO)
def test_everybody_ends_with_the_exact_weighted_mean_in_whatever_order_messages_come(n: int) -> None:
    rng = Random(n)
    tried = schedules(n) if n in TELLING else rng.sample(schedules(n), 1)
    for schedule in tried:
        length = min(rng.choice([1, schedule.pieces - 1, schedule.pieces + 3]), 67)
        weights = [Fraction(rng.choice([0, 1, 1, 3])) for _ in range(n)]
        weights[rng.randrange(n)] = Fraction(2)
        vectors = [[Fraction(rng.randrange(-9, 9)) for _ in range(length)] for _ in range(n)]
        total = sum(weights)
        mean = [sum(w * v[k] for w, v in zip(weights, vectors, strict=True)) / total for k in range(length)]
        for result in average(schedule, vectors, weights, seed=n):
            assert (result.numbers, result.weight) == (mean, total), schedule.name


@pytest.mark.parametrize("n", SOME)
def test_a_member_of_weight_zero_is_not_looked_at(n: int) -> None:
    for schedule in schedules(n):
        vectors = [[float("nan")] * schedule.pieces for _ in range(n)]
        vectors[n // 2] = [0.1 * k for k in range(schedule.pieces)]
        weights = [float(i == n // 2) for i in range(n)]
        for result in average(schedule, vectors, weights, seed=n):
            assert (result.numbers, result.weight) == (vectors[n // 2], 1.0), schedule.name


@pytest.mark.parametrize("n", SOME)
def test_all_members_have_the_same_bits_and_every_order_of_arrival_gives_them(n: int) -> None:
    rng = Random(n)
    for schedule in schedules(n):
        vectors = [[rng.random() for _ in range(schedule.pieces)] for _ in range(n)]
        weights = [rng.random() for _ in range(n)]
        results = [result for seed in (1, 2) for result in average(schedule, vectors, weights, seed)]
        assert len({tuple(result.numbers) for result in results}) == 1, schedule.name
        assert len({result.weight for result in results}) == 1, schedule.name
