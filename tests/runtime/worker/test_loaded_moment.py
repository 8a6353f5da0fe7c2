"""Where a worker begins whose loaded state is of another moment than worker 0's."""

from __future__ import annotations

import pytest
import torch

from paceline.core.effects import Data
from paceline.runtime.checkpointing.worker_position import Position
from paceline.runtime.checkpointing.worker_state import WorkerState
from paceline.runtime.worker.loaded_moment import agreed, moment_of
from paceline.runtime.worker.loop.progress import ResumedProgress


def state(samples: int, position: int, done: Data = (), common: dict[str, int] | None = None) -> ResumedProgress:
    entry = Position(position // 10, position, (torch.zeros(1),))
    memories = WorkerState(entry=entry, common=common)
    return ResumedProgress(samples=samples, done=done, memories=memories, loaded=True)


@pytest.mark.parametrize(("workers", "mine"), [(2, 170), (3, 85)])
def test_it_begins_with_worker_0s_counts_and_an_even_part_of_what_others_had_trained(workers: int, mine: int) -> None:
    first, own = state(370, 200, ((0, 0, 370),)), state(400, 190, ((0, 0, 400),))
    found = agreed(moment_of(first), workers, own)
    assert (found.samples, found.done) == (370, ((0, 0, 370),))
    assert found.memories is not None
    assert (found.memories.entry.position, found.memories.entry.steps) == (mine, round(mine / 10))
    assert found.memories.entry.generators == own.memories.entry.generators, "its own"  # type: ignore[union-attr]


def test_a_state_of_the_same_moment_stays_what_it_is() -> None:
    first, own = state(370, 200, ((0, 0, 370),)), state(370, 160, ((0, 0, 370),))
    assert agreed(moment_of(first), 3, own) == own


def test_in_rounds_its_place_is_its_own() -> None:
    first, own = state(370, 200, common={"round": 7}), state(360, 160, common={"round": 7})
    found = agreed(moment_of(first), 2, own)
    assert (found.samples, found.memories) == (370, own.memories)
