"""Quotas of the samples of a run."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.samples.sample_budget import Budget, part


@pytest.mark.parametrize("left", [0, 1, 2, 7, 96, 97])
@pytest.mark.parametrize("workers", [1, 3, 8])
def test_parts_cover_what_is_left_and_exceed_it_by_less_than_one_each(left: int, workers: int) -> None:
    assert left <= workers * part(left, workers) < left + workers


def test_nobody_is_given_more_than_it_asks_for_nor_a_piece_of_a_mini_batch() -> None:
    budget = Budget(10_000)
    assert budget.quota(0, 96, 32, workers=2) == 96
    assert budget.quota(1, 100_000, 32, workers=2) % 32 == 0
    assert budget.left > 10_000 / 2


@pytest.mark.parametrize("seed", range(20))
def test_all_together_train_just_the_samples_of_the_run_whoever_is_lost(seed: int) -> None:
    rng = random.Random(seed)
    budget, trained, held = Budget(5_000), dict.fromkeys(range(4), 0), dict.fromkeys(range(4), 0)
    here = set(range(4))
    while here:
        rank = rng.choice(sorted(here))
        batch = rng.choice((1, 7, 32))
        if held[rank] < batch:
            given = budget.quota(rank, rng.choice((1, 4, 100)) * batch, batch, len(here))
            held[rank] += given
            if not given and not held[rank]:
                here.discard(rank)  # it leaves
                continue
        done = min(batch, held[rank])
        trained[rank] += done
        held[rank] -= done
        if rng.random() < 0.02:  # it is lost, and comes back
            budget.settle(rank, trained[rank])
            held[rank] = 0
    assert budget.left == 0
    assert sum(trained.values()) == 5_000


@given(st.integers(2, 90), st.lists(st.integers(2, 9), min_size=1, max_size=5))
def test_several_workers_are_left_no_single_sample_whatever_their_batches(samples: int, batches: list[int]) -> None:
    budget, given_out = Budget(samples), []
    for batch in itertools.cycle(batches):
        given_out.append(budget.quota(0, batch, batch, workers=2))
        if not budget.left:
            break
    assert sum(given_out) == samples
    assert min(given_out) > 1


def test_the_slowest_worker_is_given_no_more_than_a_mini_batch_of_the_last_ones() -> None:
    budget = Budget(8 * 32)
    assert budget.quota(0, 100 * 32, 32, workers=8) == 32
