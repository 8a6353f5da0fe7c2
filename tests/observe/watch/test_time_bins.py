"""Sums over time in bins whose width grows with the run."""

from __future__ import annotations

import random

import pytest

import paceline.schemes  # noqa: F401  enters the catalogue
from paceline.core.trace import Span
from paceline.observe.watch.state import PageState


def test_strips_keep_every_second_while_they_may_and_the_latest_afterwards() -> None:
    rng = random.Random(3)
    state, at = PageState(1), 0.0
    for _ in range(3000):
        seconds = rng.uniform(0.01, 0.09)
        at += seconds
        state.add(Span(at=at, rank=0, activity="computing", seconds=seconds, steps=1, samples=2))
        bins = [sum(sums) for sums in state.strips.of(0)]
        since = state.strips.first * state.strips.width_s
        assert sum(bins) == pytest.approx(at - since, abs=0.01)
    assert at > 120
    assert len(bins) * state.strips.width_s >= 120
    assert sum(sum(sums) for sums in state.rates.of(0)) == pytest.approx(6000)
