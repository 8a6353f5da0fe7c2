"""Seconds left and rates are of this run of the command, not of those before it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from paceline.core.coordination.control_messages import NOTHING
from paceline.core.trace import Applied, Decided, Gated, Span
from paceline.runtime.run_folder.run_statistics import RunStatistics
from paceline.runtime.spec.job_spec import Recipe
from tests.held_objects import held
from tests.runtime.one_process import config_for


def test_the_seconds_left_are_of_this_life_of_the_run(out: Path) -> None:
    def left(*, before: int, now: int, elapsed_s: float, **stop: Any) -> float | None:
        statistics = RunStatistics(config_for(out, steps=stop.pop("steps", 0), stop=stop), 1000, begun_at=before * 10)
        for rank in range(2):
            progress = dataclasses.replace(
                NOTHING, steps=now, samples=now * 5, steps_before=before, samples_before=before * 5
            )
            statistics.progressed(rank, progress, elapsed_s)
        return statistics.snapshot(elapsed_s).seconds_left

    for ends in ({"steps": 100}, {"epochs": 1.0}):
        assert left(before=0, now=50, elapsed_s=10.0, **ends) == pytest.approx(10.0)
        assert left(before=90, now=95, elapsed_s=10.0, **ends) == pytest.approx(10.0)
        assert left(before=90, now=90, elapsed_s=10.0, **ends) is None
    assert left(before=90, now=95, elapsed_s=10.0, seconds=30.0) == pytest.approx(20.0)


def test_the_rate_that_is_shown_is_of_this_life_of_the_run(out: Path) -> None:
    statistics = RunStatistics(config_for(out, steps=100), 1000, begun_at=900)
    assert statistics.snapshot(0.5).samples_per_second == 0  # nobody has reported yet
    for rank in range(2):
        statistics.progressed(rank, dataclasses.replace(NOTHING, samples=500, samples_before=450), 10.0)
    assert statistics.snapshot(10.0).samples_per_second == pytest.approx(10.0)
    assert statistics.snapshot(10.0).samples == 1000


@pytest.mark.parametrize("before", [(450, 610), (300, 500), (0, 0)])
def test_what_a_run_goes_on_from_is_what_is_in_the_weights(out: Path, before: tuple[int, int]) -> None:
    """Workers were kept at moments of their own, so theirs add up to more or less."""
    statistics = RunStatistics(config_for(out, steps=100), 1000, begun_at=900)
    for rank, own in enumerate(before):
        progress = dataclasses.replace(NOTHING, samples=own + 50, samples_before=own)
        statistics.progressed(rank, progress, 10.0)
    summary = statistics.summary()
    assert summary.samples == 1000 == sum(worker.samples for worker in summary.workers)
    assert all(worker.samples >= 50 for worker in summary.workers)


@pytest.mark.parametrize(
    ("scheme", "exchanges", "flag"),
    [("diloco", 0, "--diloco.h"), ("localsgd", 0, "--localsgd.tau"), ("diloco", 1, ""), ("bsp", 0, "")],
)
def test_a_run_that_ends_before_its_first_exchange_says_so(out: Path, scheme: str, exchanges: int, flag: str) -> None:
    statistics = RunStatistics(config_for(out, scheme=scheme, steps=5), 1000)
    assert statistics.summary().warning == ""  # nobody has trained
    for rank in range(2):
        statistics.progressed(rank, dataclasses.replace(NOTHING, steps=5, samples=50, exchanges=exchanges * rank), 1.0)
    warning = statistics.summary().warning
    assert warning.endswith(f"Train for longer, or take fewer local steps ({flag}).") if flag else not warning


def test_a_run_that_goes_on_with_nothing_left_says_nothing(out: Path) -> None:
    statistics = RunStatistics(config_for(out, scheme="diloco", steps=5), 1000, begun_at=100)
    for rank in range(2):
        statistics.progressed(rank, dataclasses.replace(NOTHING, steps=5, samples=50, steps_before=5), 1.0)
    assert statistics.summary().warning == ""


def test_a_run_whose_only_exchange_is_its_last_has_trained_its_model(out: Path) -> None:
    statistics = RunStatistics(config_for(out, scheme="diloco", steps=5), 1000)
    for rank in range(2):
        statistics.progressed(rank, dataclasses.replace(NOTHING, steps=5, samples=50), 1.0)
        statistics.recorded(Span(at=1.0, rank=rank, activity="computing", seconds=1.0, steps=5, samples=50))
    assert "Nobody made an exchange" in statistics.summary().warning
    for rank in range(2):
        statistics.recorded(Span(at=1.1, rank=rank, activity="waiting", seconds=0.1))
    statistics.finished("steps", 1.1)
    summary = statistics.summary()
    assert summary.warning == ""
    assert summary.goodput == pytest.approx(1 / 1.1)


def test_what_is_held_does_not_grow_with_the_run(out: Path) -> None:
    statistics, sizes = RunStatistics(config_for(out, scheme="asp", steps=10_000), 1000), []
    statistics.started(Recipe(scheme="asp"), 10)
    for number in range(1, 20_001):
        at, rank = 0.01 * number, number % 2
        statistics.progressed(rank, dataclasses.replace(NOTHING, steps=number, samples=8 * number), at)
        for record in (
            Span(at=at, rank=rank, activity="computing", seconds=0.01, steps=1, samples=8, exchanges=1),
            Applied(at=at, shard=0, ranks=(rank,), version=number, staleness=1, weight=1.0, samples=8),
            Gated(at=at, shard=0, rank=rank, number=number, refused=False, reason="far longer than most"),
            Decided(at=at, party="server 0", rank=rank, verdict="wait", reason="worker 1 is behind"),
        ):
            statistics.recorded(record)
        if number in (2_000, 20_000):
            sizes.append(held(statistics))
    assert sizes[1] - sizes[0] < 2_000, f"{sizes}: nothing is kept for each record"
    statistics.finished("steps", 200.0)
    summary = statistics.summary()
    assert summary.goodput == pytest.approx(0.5)
    assert [worker.wild for worker in summary.workers] == [10_000, 10_000]
