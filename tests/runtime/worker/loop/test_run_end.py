"""Rules that end the run of a script, and win over what the script says."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import run_loops, toy_data

DATA = toy_data(90)


def samples_of(
    out: Path, scheme: str, calls: list[int | None], stop: dict[str, Any], partition: str = "auto", **run: Any
) -> int:
    def loop(pace: Pace, model: nn.Module) -> None:
        for epochs in calls:
            for x, y in pace.batches(DATA, 8, epochs=epochs, partition=partition):
                nn.functional.cross_entropy(model(x), y).backward()
                pace.step()

    summary, _ = run_loops(out, scheme, loop, stop=stop, **run)
    return summary.samples


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync", "localsgd"])
@pytest.mark.parametrize("calls", [[10], [None], [2]], ids=["more", "endless", "fewer"])
def test_epochs_of_the_command_win(out: Path, scheme: str, workers: int, calls: list[int | None]) -> None:
    assert samples_of(out, scheme, calls, {"epochs": 3.5}, workers=workers) == 315


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync", "localsgd", "easgd"])
@pytest.mark.parametrize("calls", [[10], [1] * 10], ids=["at once", "one at a time"])
def test_so_they_do_where_each_worker_has_a_share(
    out: Path, scheme: str, workers: int, calls: list[int | None]
) -> None:
    found = samples_of(out, scheme, calls, {"epochs": 1.5}, workers=workers, partition="uniform")
    assert found == 135


def test_so_they_do_where_samples_are_leased(out: Path) -> None:
    """A fast worker begins the next epoch before all samples of the last one are known to be in updates."""
    assert 135 <= samples_of(out, "asp", [10], {"epochs": 1.5}, workers=2, partition="queue") < 10 * 90


@pytest.mark.parametrize("scheme", ["bsp", "asp"])
def test_a_loop_whose_epochs_nobody_knows_is_named(out: Path, scheme: str) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        for _ in range(3):
            nn.functional.cross_entropy(model(DATA[:8][0]), DATA[:8][1]).backward()
            pace.step()

    with pytest.warns(UserWarning, match="nobody knows how many samples an epoch has"):
        run_loops(out, scheme, loop, workers=1, stop={"epochs": 0.1})


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync", "localsgd"])
def test_so_do_samples(out: Path, scheme: str) -> None:
    assert samples_of(out, scheme, [10], {"samples": 123}) == 123


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync"])
def test_a_loop_that_asks_for_an_epoch_at_a_time_keeps_its_epochs_and_ends_earlier(out: Path, scheme: str) -> None:
    ends: list[tuple[int, int]] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        for epoch in range(5):
            for x, y in pace.batches(DATA, 8):
                nn.functional.cross_entropy(model(x), y).backward()
                pace.step()
            ends.append((epoch, pace.steps))

    summary, _ = run_loops(out, scheme, loop, workers=1, stop={"epochs": 2})
    assert summary.samples == 180
    assert ends == [(0, 12), *[(epoch, 24) for epoch in range(1, 5)]]


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync"])
def test_samples_end_a_loop_with_batches_of_its_own_too(out: Path, scheme: str) -> None:
    """Such a loop is not told beforehand: it may go beyond by what all have under way."""

    def loop(pace: Pace, model: nn.Module) -> None:
        while not pace.over:
            x, y = DATA[:8]
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step(8)

    summary, _ = run_loops(out, scheme, loop, workers=2, stop={"samples": 160})
    assert 160 <= summary.samples < 160 + 2 * 16 * 8  # a round of two workers, of at most 16 steps each


@pytest.mark.parametrize("scheme", ["esync", "lbbsp"])
def test_they_end_it_for_all_after_the_same_exchange_where_rounds_are_unequal(out: Path, scheme: str) -> None:
    """No worker can know beforehand how many the others train; what a fast one has trained is not left over."""
    totals: list[int] = []

    def loop(pace: Pace, model: nn.Module) -> None:
        while not pace.over:
            size = 2 if pace.rank else 8
            x, y = DATA[:size]
            nn.functional.cross_entropy(model(x), y).backward()
            if pace.rank:
                threading.Event().wait(0.01)
            pace.step(size)
        totals.append(pace.total_samples)

    summary, _ = run_loops(out, scheme, loop, workers=2, stop={"samples": 160})
    assert summary.samples >= 160
    assert totals == [summary.samples] * 2


def test_steps_end_each_worker(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(DATA, 8, epochs=None):
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()

    summary, _ = run_loops(out, "asp", loop, workers=2, stop={"steps": 7})
    assert [worker.steps for worker in summary.workers] == [7, 7]
