"""What a step of a virtual worker costs."""

from __future__ import annotations

import pytest

from paceline.core.vector import Ghost, splice
from paceline.runtime.simulated.workload import ExchangeSpacing, TrainingEnded
from tests.runtime.simulated.virtual_runs import run


def test_a_batch_costs_what_its_samples_cost() -> None:
    for timing_only in (False, True):
        summary = run("bsp", timing_only=timing_only, stop={"steps": 30, "epochs": 0})
        cost = [w.seconds_computing / w.samples for w in summary.workers]
        assert cost == pytest.approx([0.01 / 32, 0.02 / 32, 0.04 / 32])


def test_steps_are_counted_between_two_exchanges() -> None:
    spacing = ExchangeSpacing(2)
    assert spacing.mean is None
    spacing.worked(0, 8, exchanged=False)
    for _ in range(3):
        spacing.worked(0, 8, exchanged=True)
    assert spacing.mean == 8.0, "the last 8 steps are not between two exchanges"
    spacing.worked(1, 2, exchanged=False)
    spacing.worked(1, 0, exchanged=True)
    assert spacing.mean == pytest.approx(26 / 4)


def test_weights_with_a_part_from_elsewhere_are_no_longer_the_ones_that_were_trained() -> None:
    trained = TrainingEnded(8)
    assert splice(trained, slice(0, 4), Ghost(4)) is not trained
