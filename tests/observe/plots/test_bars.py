"""Bars: the time to the target, and traffic both ways."""

from __future__ import annotations

from paceline.observe.plots import bars
from tests.observe.plots.drawing import drawn, run, words


def test_the_time_to_the_target_says_how_many_times_sooner_and_how_many_missed_it() -> None:
    figure = bars.to_target(
        drawn(
            run("bsp", 0, seconds_to_target=20.0),
            run("esync", 0, seconds_to_target=5.0),
            run("esync", 1, seconds_to_target=None),
        )
    )
    assert {"20.0 s  baseline", "5.0 s  ×4.0  (1 of 2 missed it)"} <= set(words(figure))


def test_traffic_is_shown_both_ways() -> None:
    figure = bars.traffic(drawn(run("bsp", seconds=10.0, bytes_up=20_000_000, bytes_down=30_000_000)))
    assert {"2.0 MB/s, 20.0 MB in all", "3.0 MB/s, 30.0 MB in all"} <= set(words(figure))
