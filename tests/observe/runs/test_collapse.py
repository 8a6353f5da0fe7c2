"""Who is told that the model has collapsed, and who is not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from paceline.cli.main import main
from paceline.core.trace import Evaluated
from paceline.observe.runs.collapse import collapse, way_out

STEPS = 2000
GUESSED = [(0.09, 2.31), (0.1, 2.3), (0.08, 2.32), (0.11, 2.31), (0.1, 2.33), (0.09, 2.31), (0.1, 2.3)]


def told(points: Sequence[tuple[float, float]], chance: float = 0.1, steps: int = STEPS) -> str:
    evaluations = [
        Evaluated(at=float(n), accuracy=accuracy, loss=loss, samples=100 * n, seconds=0.0, chance=chance)
        for n, (accuracy, loss) in enumerate(points)
    ]
    return collapse(evaluations, steps)


def test_a_model_that_guesses_is_told() -> None:
    assert "no better than guessing: accuracy 0.1" in told(GUESSED)


def test_a_model_that_guesses_is_told_though_its_loss_has_fallen_to_that_of_constant_answers() -> None:
    assert "guessing" in told([(0.1, 40.0), *GUESSED[1:]])


def test_a_model_that_has_lost_what_it_had_is_told_also_after_a_resume() -> None:
    assert "0.970 at its best" in told([(0.97, 0.1), (0.9, 0.3), (0.6, 1.2), *[(0.4, 2.0)] * 4])


def test_a_loss_that_shot_up_and_has_not_come_down_is_told() -> None:
    assert "7 at its worst" in told([(0.12, 2.3), (0.2, 2.0), (0.15, 7.0), *[(0.24, 2.05)] * 4])


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_told_at_once(loss: float) -> None:
    assert "training went wrong" in told([(0.1, loss)], chance=0.0, steps=1)


LEARNED = [(0.1, 2.3), (0.6, 1.2), (0.8, 0.7), (0.9, 0.4), (0.93, 0.3), (0.94, 0.25), (0.95, 0.2)]


@pytest.mark.parametrize(
    ("points", "chance"),
    [
        pytest.param(LEARNED, 0.1, id="a model that learns"),
        pytest.param([(0.97, 0.1)] * 4 + [(0.97, 0.2)] * 4, 0.1, id="a resumed run that overfits"),
        pytest.param([(0.5, 1.5)] * 3 + [(0.55, 2.5 + n) for n in range(5)], 0.1, id="overfits, badly"),
        pytest.param([(0.1, 4.6), *[(0.05 + 0.01 * n, 4.3 - 0.1 * n) for n in range(9)]], 0.01, id="a slow beginning"),
        pytest.param([(0.97, 0.4)] + [(0.97, 0.4 - 0.04 * n) for n in range(1, 8)], 0.97, id="classes very uneven"),
        pytest.param([(0.1, 2.3), (0.15, 9.0), (0.5, 1.5), *[(0.9, 0.4)] * 4], 0.1, id="recovers from a bad moment"),
        pytest.param([(0.0, 0.5)] * 9, 0.0, id="no classes: nobody knows what chance is"),
        pytest.param(GUESSED[:5], 0.1, id="few evaluations"),
        pytest.param([], 0.1, id="no evaluation"),
    ],
)
def test_nothing_is_said_of(points: Sequence[tuple[float, float]], chance: float) -> None:
    assert told(points, chance) == ""


def test_nothing_is_said_of_a_short_run() -> None:
    assert told(GUESSED, steps=100) == ""


def test_the_way_out_names_an_option_that_the_scheme_has_and_is_not_used_yet() -> None:
    assert "0.0094), --asp.weighting inverse" in way_out("asp", {"weighting": "none"}, 0.15, 16)
    assert "weighting" not in way_out("ssp", {"weighting": "inverse"}, 0.15, 16)
    assert "weighting" not in way_out("bsp", {}, 0.15, 16)


def test_a_short_run_is_judged_by_its_loss_when_it_is_over_and_earlier_where_that_has_risen() -> None:
    evaluations = [
        Evaluated(at=float(n), accuracy=accuracy, loss=loss, samples=100 * n, seconds=0.0, chance=0.1)
        for n, (accuracy, loss) in enumerate(GUESSED)
    ]
    assert "no better than guessing" in collapse(evaluations, 100, over=True)
    assert "no better than guessing" in told([(0.1, 2.3), *[(0.1, 2.3 + 0.1 * n) for n in range(1, 8)]], steps=100)


def test_the_way_out_names_the_scheme_and_the_rate_that_it_trains_at() -> None:
    assert way_out("bsp", {}, 0.15, 16).startswith("bsp trains at --lr 0.15.")
    assert "asp trains at 0.0094, which is --lr 0.15 times --lr-scale 0.062" in way_out("asp", {}, 0.15, 16, 1 / 16)


RUN = "simulate --workers 16 --scheme asp --step-ms 20 --lr-scale none"


def test_sixteen_asynchronous_workers_collapse_at_an_unscaled_rate_and_say_so_and_one_epoch_says_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*RUN.split(), "--epochs", "1", "--out", str(tmp_path / "short")]) == 0
    assert "guessing" not in capsys.readouterr().out
    assert main([*RUN.split(), "--out", str(tmp_path / "long")]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if "no better than guessing" in line]
    assert len(said) == 1
    assert "--asp.weighting inverse" in said[0]


def test_the_weighting_that_is_named_as_a_way_out_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN.split(), "--asp.weighting", "inverse", "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert float(said.split("test accuracy ")[1].split(";")[0]) > 0.8
    assert "A way out" not in said
