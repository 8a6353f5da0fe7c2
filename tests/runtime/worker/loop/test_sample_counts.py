"""How many samples all workers have trained, as one of them knows it."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from paceline.runtime.worker.loop.sample_counts import ByQuota, Clock
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import run_loops, toy_data


def test_a_loop_without_pace_batches_tells_the_samples_itself(out: Path) -> None:
    x, y = toy_data().tensors

    def loop(pace: Pace, model: nn.Module) -> None:
        for _ in range(3):
            nn.functional.cross_entropy(model(x[:7]), y[:7]).backward()
            pace.step(samples=7)

    summary, _ = run_loops(out, "bsp", loop)
    assert [worker.samples for worker in summary.workers] == [21] * 3


@pytest.mark.parametrize("scheme", ["adpsgd", "eamsgd"])
def test_the_schedule_of_a_worker_that_updates_alone_counts_what_all_have_seen(out: Path, scheme: str) -> None:
    told: list[int] = []
    deadline = time.monotonic() + 60

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(toy_data(), 8, epochs=None):
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()
            if pace._worker.model.update.samples_seen > 8 * pace.steps:
                told.append(pace.rank)
                return
            assert time.monotonic() < deadline, "it counts its own alone"

    run_loops(out, scheme, loop, workers=2)
    assert sorted(told) == [0, 1]


def test_unequal_batches_are_counted_as_they_are_where_no_exchange_counts_them(out: Path) -> None:
    """A worker of sgp knows its own batches alone."""
    x, y = toy_data().tensors
    totals: list[int] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        for _ in range(3):
            size = 3 if pace.rank else 7
            nn.functional.cross_entropy(model(x[:size]), y[:size]).backward()
            pace.step(size)
        pace.close()
        totals.append(pace.total_samples)

    summary, _ = run_loops(out, "sgp", loop, workers=2)
    assert summary.samples == 30
    assert totals == [30, 30]


@pytest.mark.parametrize(("equal_rounds", "expected"), [(True, 100 + 3 * 40), (False, 100 + 40)])
def test_in_unequal_rounds_a_fast_worker_does_not_count_its_own_speed_for_others(
    equal_rounds: bool, expected: int
) -> None:
    """Else its schedule is over before the run is, and a schedule never goes back."""
    role: Any = SimpleNamespace(samples_seen=100, samples_ahead=0)
    clock = Clock(lambda: role, lock_step=True, equal_rounds=equal_rounds, workers=lambda: 3, told=lambda: 110)
    clock.trained(40)
    assert clock.now == expected


@pytest.mark.parametrize("scheme", ["bsp", "asp"])
def test_after_close_the_total_is_that_of_the_run_on_a_worker_that_left_before_others(out: Path, scheme: str) -> None:
    x, y = toy_data().tensors
    totals: list[int] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        for _ in range(2 if pace.rank else 5):
            nn.functional.cross_entropy(model(x[:4]), y[:4]).backward()
            pace.step(4)
        pace.close()
        totals.append(pace.total_samples)

    run_loops(out, scheme, loop, workers=2)
    assert totals == [28, 28]


def test_a_worker_that_leaves_asks_for_no_samples_where_it_holds_some_or_has_asked() -> None:
    """So the coordinator gives these to the others (`tests/core/coordination/test_lifecycle.py`)."""
    asked: list[tuple[int, int]] = []
    quotas = ByQuota(
        lambda samples, batch: asked.append((samples, batch)), lambda wait: 24 if wait else None, float, divided=True
    )
    quotas.leave()
    assert asked == []
    assert quotas.size(8, begins=True) == 8
    quotas.trained(8)
    quotas.leave()
    assert asked == [(8, 8), (0, 1)]
