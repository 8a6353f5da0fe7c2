"""The curve of the live page: thinned by time, and true."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random

from paceline.core.trace import Evaluated
from paceline.observe.plots.curves import between
from paceline.observe.watch.evaluations import POINTS_MAX, Evaluations

COUNT, EVERY_S = 10_000, 0.7


def evaluated(number: int, accuracy: float) -> Evaluated:
    return Evaluated(at=number * EVERY_S, accuracy=accuracy, loss=1.0, samples=number, seconds=0.0)


def rising(number: int) -> float:
    return 1 - math.exp(-number / 700)


def kept(count: int) -> Evaluations:
    evaluations = Evaluations()
    for number in range(count):
        evaluations.add(evaluated(number, rising(number)))
    return evaluations


def test_the_curve_of_a_long_run_is_the_one_that_plot_draws() -> None:
    page = [(e.at, e.accuracy) for e in kept(COUNT).points]
    plot = [(number * EVERY_S, rising(number)) for number in range(COUNT)]
    assert max(abs(between(page, at) - accuracy) for at, accuracy in plot) < 0.01


def test_at_every_moment_of_a_run_its_points_are_evenly_spread_and_reach_from_end_to_end() -> None:
    evaluations = Evaluations()
    for number in range(COUNT):
        evaluations.add(evaluated(number, rising(number)))
        if number % 97 == 0:
            points = evaluations.points
            assert len(points) <= POINTS_MAX
            assert (points[0].at, points[-1].at) == (0.0, number * EVERY_S)
            gaps = [later.at - earlier.at for earlier, later in pairwise(points)]
            assert max(gaps, default=0.0) <= max(EVERY_S, 8 * number * EVERY_S / POINTS_MAX) + 1e-6
    assert evaluations.count == COUNT


def test_evaluations_that_come_in_another_order_make_the_same_curve_to_a_bin() -> None:
    numbers = list(range(3 * POINTS_MAX))
    Random(1).shuffle(numbers)
    evaluations = Evaluations()
    for number in numbers:
        evaluations.add(evaluated(number, rising(number)))
    times = [e.at for e in evaluations.points]
    assert times == sorted(times)
    assert len(times) <= POINTS_MAX
    assert max(later - earlier for earlier, later in pairwise(times)) < 16 * EVERY_S


def test_a_short_run_keeps_every_point() -> None:
    assert [e.samples for e in kept(POINTS_MAX).points] == list(range(POINTS_MAX))
