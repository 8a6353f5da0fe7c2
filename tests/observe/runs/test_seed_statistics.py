"""Means and speed-ups over runs that differ in their seeds."""

from __future__ import annotations

import pytest

from paceline.observe.runs.run_folders import groups
from paceline.observe.runs.seed_statistics import Spread, standings
from tests.observe.terminal.races import RACES


def test_a_speed_up_is_that_of_runs_of_one_seed_with_mean_and_spread() -> None:
    best = standings(groups(RACES))[1]
    assert (best.name, best.reached) == ("esync", 2)  # behind bsp, all of whose runs reached the target
    assert best.speedup == Spread(4.5, pytest.approx(0.7071, abs=1e-4), 2)  # 20 / 5 and 30 / 6
    assert best.seconds_to_target
    assert best.seconds_to_target.text(lambda s: f"{s:.1f} s") == "5.5±0.7 s"
