"""Updates in the model: exact for the latest ones, near for older ones, and of one size however long a run is."""

from __future__ import annotations

import pytest

from paceline.core.trace import Applied
from paceline.observe.runs.updates_in_model import KEPT, LEVELS, UpdatesInModel


def update(version: int, *ranks: int, samples: int = 8) -> Applied:
    return Applied(at=0.0, shard=0, ranks=ranks, version=version, staleness=0, weight=1.0, samples=samples)


def updates(versions: range, workers: int = 4) -> UpdatesInModel:
    found = UpdatesInModel()
    for version in versions:
        found.add(update(version, version % workers))
    return found


def test_the_latest_updates_are_undone_one_by_one() -> None:
    made = updates(range(1, 1001))
    for back in range(1, KEPT + 1):
        made.undo(1001 - back)
        assert sum(made.samples.values()) == pytest.approx(8 * (1000 - back))


@pytest.mark.parametrize("back", [20, 333, 5_000, 29_999])
def test_older_updates_are_undone_to_within_one_for_each_worker(back: int) -> None:
    made = updates(range(1, 30_001))
    made.undo(30_001 - back)
    for rank in range(4):
        assert made.samples[rank] == pytest.approx(8 * (30_000 - back) / 4, abs=8)


def test_who_joined_late_loses_no_more_than_a_sixteenth_of_what_is_undone() -> None:
    made = UpdatesInModel()
    for version in range(1, 10_001):
        made.add(update(version, *((0,) if version <= 8_000 else (0, 1))))
    made.undo(9_000)
    assert made.samples[1] == pytest.approx(4 * 999, abs=4 * 1_001 / KEPT)


def test_all_can_be_undone() -> None:
    made = updates(range(1, 5_001))
    made.undo(1)
    assert not made
    assert len(made) == 0
    assert sum(made.samples.values()) == pytest.approx(0)
    made.add(update(1, 0))
    assert made.samples[0] == pytest.approx(8)


def test_a_phase_that_is_over_is_not_undone() -> None:
    made = updates(range(1, 101))
    for version in range(1, 11):
        made.add(update(version, 0))
    made.undo(1)
    assert made
    assert sum(made.samples.values()) == pytest.approx(800)


def test_the_number_of_blocks_does_not_grow_with_the_run() -> None:
    made = updates(range(1, 10))
    for version in range(10, 150_000):
        made.add(update(version, version % 4))
        if version in (1_000, 10_000, 100_000):
            assert len(made) <= KEPT * LEVELS
    assert sum(made.samples.values()) == pytest.approx(8 * 149_999)
