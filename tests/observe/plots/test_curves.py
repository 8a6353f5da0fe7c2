"""`paceline plot`: what is on the figures' axes, for any number of seeds and workers, and what the report holds."""

from __future__ import annotations

import pytest

from paceline.observe.plots import curves
from tests.observe.plots.drawing import drawn, run, words


def test_the_mean_over_seeds_goes_as_far_as_all_of_them_do() -> None:
    xs, means, deviations = curves.mean_line([[(0.0, 0.0), (10.0, 1.0)], [(2.0, 0.4), (6.0, 0.8)]])
    assert (xs[0], xs[-1]) == (2.0, 6.0)
    assert (means[0], means[-1]) == (pytest.approx(0.3), pytest.approx(0.7))
    assert deviations[0] == pytest.approx(0.1 * 2**0.5)


def test_one_worker_alone_is_a_dotted_line_within_the_scale() -> None:
    figure = curves.accuracy(drawn(run("bsp")), by="time", standalone=0.97)
    assert figure is not None
    [axes] = figure.axes
    assert "alone 0.97" in words(figure)
    assert axes.lines[-1].get_ydata()[0] == 0.97
    assert axes.get_ylim()[1] > 0.97


def test_several_seeds_are_one_thick_line_a_band_and_a_thin_line_each() -> None:
    figure = curves.accuracy(drawn(run("bsp", 0), run("bsp", 1), run("esync", 0)), by="time")
    assert figure is not None
    [axes] = figure.axes
    thin = [line for line in axes.lines if line.get_linewidth() < 1]
    assert (len(thin), len(axes.collections)) == (2, 1)
    assert {"bsp", "esync"} <= set(words(figure))
