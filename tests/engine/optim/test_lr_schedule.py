"""The schedule's factor, number by number."""

from __future__ import annotations

import math

import pytest

from paceline.core.errors import ConfigError
from paceline.engine.optim.lr_schedule import check, factor
from paceline.engine.specs import ScheduleRecipe


def test_a_constant_schedule_is_one() -> None:
    assert [factor(ScheduleRecipe(), n) for n in (0, 1, 10**9)] == [1, 1, 1]


@pytest.mark.parametrize("name", ["constant", "step", "cosine", "poly"])
def test_every_schedule_warms_up_linearly_from_zero(name: str) -> None:
    recipe = ScheduleRecipe(name=name, warmup=100, every=1000, total=1000)
    check(recipe)
    assert [factor(recipe, n) for n in (0, 25, 50, 100)] == [0, 0.25, 0.5, 1]


def test_a_step_schedule_falls_by_its_factor_every_so_many_samples() -> None:
    recipe = ScheduleRecipe(name="step", every=100, factor=0.5)
    assert [factor(recipe, n) for n in (0, 99, 100, 199, 200, 1000)] == [1, 1, 0.5, 0.5, 0.25, 0.5**10]


def test_a_step_schedule_may_fall_at_given_numbers_of_samples() -> None:
    recipe = ScheduleRecipe(name="step", at=(200, 250), factor=0.1)
    check(recipe)
    assert [factor(recipe, n) for n in (0, 199, 200, 249, 250, 9999)] == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def test_a_poly_schedule_falls_by_a_power_of_what_is_left() -> None:
    recipe = ScheduleRecipe(name="poly", warmup=100, total=1100, power=2.0)
    assert [factor(recipe, n) for n in (100, 600, 1100, 9999)] == pytest.approx([1, 0.25, 0, 0])


def test_a_cosine_schedule_falls_from_one_to_its_floor_and_stays_there() -> None:
    recipe = ScheduleRecipe(name="cosine", warmup=100, total=1100, floor=0.2)
    assert factor(recipe, 600) == pytest.approx(0.6)
    assert factor(recipe, 350) == pytest.approx(0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2)
    assert factor(recipe, 1100) == pytest.approx(0.2)
    assert factor(recipe, 10**9) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({"name": "linear"}, "linear"),
        ({"warmup": -1}, "warmup"),
        ({"name": "step"}, "every"),
        ({"name": "step", "every": 1, "factor": 0.0}, "factor"),
        ({"name": "step", "every": 1, "factor": math.nan}, "factor"),
        ({"name": "cosine", "warmup": 10, "total": 10}, "total"),
        ({"name": "cosine", "total": 10, "floor": 1.5}, "floor"),
        ({"name": "step", "at": (10, -1)}, "at"),
        ({"name": "poly", "total": 10, "power": 0.0}, "power"),
    ],
)
def test_what_is_no_schedule_is_refused_by_name(bad: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        check(ScheduleRecipe(**bad))  # type: ignore[arg-type]
