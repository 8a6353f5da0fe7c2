"""What a step of a virtual worker costs."""

from __future__ import annotations

import pytest

from tests.runtime.simulated.virtual_runs import run


def test_a_batch_costs_what_its_samples_cost() -> None:
    for timing_only in (False, True):
        summary = run("bsp", timing_only=timing_only, stop={"steps": 30, "epochs": 0})
        cost = [w.seconds_computing / w.samples for w in summary.workers]
        assert cost == pytest.approx([0.01 / 32, 0.02 / 32, 0.04 / 32])
