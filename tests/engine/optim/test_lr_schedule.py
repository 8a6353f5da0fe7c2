"""The schedule's factor, number by number."""

from __future__ import annotations

import math

import pytest

from paceline.core.errors import ConfigError
from paceline.engine.optim.lr_schedule import check, factor
from paceline.engine.specs import ScheduleRecipe


def test_a_constant_schedule_is_one() -> None:
    assert [factor(ScheduleRecipe(), n) for n in (0, 1, 10**9)] == [1, 1, 1]


@pytest.mark.parametrize("name", ["constant", "step", "cosine"])
def test_every_schedule_warms_up_linearly_from_zero(name: str) -> None:
    recipe = ScheduleRecipe(name=name, warmup=100, every=1000, total=1000)
    check(recipe)
    assert [factor(recipe, n) for n in (0, 25, 50, 100)] == [0, 0.25, 0.5, 1]


def test_a_step_schedule_falls_by_its_factor_every_so_many_samples() -> None:
    recipe = ScheduleRecipe(name="step", every=100, factor=0.5)
    assert [factor(recipe, n) for n in (0, 99, 100, 199, 200, 1000)] == [1, 1, 0.5, 0.5, 0.25, 0.5**10]


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
    ],
)
def test_what_is_no_schedule_is_refused_by_name(bad: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        check(ScheduleRecipe(**bad))  # type: ignore[arg-type]
