"""What a worker's step computes, and the virtual seconds it takes."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from paceline.core.effects import KEEP, RESET, Compute, Train
from paceline.core.vector import Ghost
from paceline.sim.kernel.workload import LocalSteps, UniformSeconds, equal_shards, plain_sgd

RNG = Random(0)
W = np.array([1.0, -2.0])


def steps(**options: Any) -> LocalSteps:
    return LocalSteps(lambda rank, rng: 0.5 + rank, **options)


def test_a_gradient_over_several_batches_is_their_mean_and_takes_their_seconds() -> None:
    drawn = iter([1.0, 2.0, 6.0])
    done = steps(gradient=lambda rank, w: np.array([next(drawn)])).compute(1, Compute(W, steps=3), RNG)
    assert done.g == pytest.approx([3.0])
    assert (done.samples, done.seconds) == (3, 4.5)


def test_a_batch_of_another_size_takes_time_in_proportion() -> None:
    done = steps(samples=lambda rank: 8).compute(0, Compute(W, samples=32), RNG)
    assert (done.samples, done.seconds) == (32, 2.0)


def test_local_steps_go_down_the_gradient() -> None:
    done = steps(gradient=lambda rank, w: w, lr=0.1).train(0, Train(W, 2), RNG)
    assert done.x.tolist() == pytest.approx((W * 0.81).tolist())
    assert (done.samples, done.seconds) == (2, 1.0)


def test_momentum_is_kept_between_calls_only_where_it_is_asked_for() -> None:
    ones = np.ones(1)
    work = steps(gradient=lambda rank, w: ones, lr=1.0, momentum=0.5)

    def moved(memory: Any) -> float:
        return -float(work.train(0, Train(np.zeros(1), 1, memory=memory), RNG).x[0])

    assert [moved(KEEP), moved(KEEP), moved(KEEP)] == [1.0, 1.5, 1.75]
    assert moved(np.full(1, 4.0)) == 3.0
    assert moved(RESET) == 1.0


def test_the_memory_is_shown_where_it_is_asked_for() -> None:
    work = steps(gradient=lambda rank, w: np.ones(1), momentum=0.5)
    assert work.train(0, Train(np.zeros(1), 1), RNG).memory is None
    assert work.train(0, Train(np.zeros(1), 1, show_memory=True), RNG).memory.tolist() == [1.5]


def test_shards_cover_the_model_and_each_has_its_own_rule() -> None:
    shards = equal_shards(7, 3, plain_sgd(0.5))
    assert [(shard.part.start, shard.part.stop) for shard in shards] == [(0, 2), (2, 4), (4, 7)]
    assert shards[0].make_update()(W, W, 1).tolist() == (W / 2).tolist()
    assert equal_shards(7, 0, plain_sgd(0.5)) == ()


def test_uniform_seconds_are_those_of_a_function_that_draws_each_step_bit_for_bit() -> None:
    one, other = LocalSteps(UniformSeconds(1.5, 4.25)), LocalSteps(lambda rank, rng: rng.uniform(1.5, 4.25))
    a, b = Random(3), Random(3)
    for wanted in (Train(W, 1), Train(W, 20), Train(W, 7)):
        assert one.train(0, wanted, a).seconds == other.train(0, wanted, b).seconds
    for steps in (1, 3):
        assert one.compute(0, Compute(W, steps), a).seconds == other.compute(0, Compute(W, steps), b).seconds


def test_local_steps_without_a_gradient_leave_a_vector_without_numbers_as_it_is_and_shrink_one_with_numbers() -> None:
    work, ghost = steps(lr=0.1, momentum=0.5), Ghost(3)
    done = work.train(0, Train(ghost, 4, show_memory=True), RNG)
    assert done.x is ghost
    assert done.memory is ghost
    assert (done.samples, done.seconds) == (4, 2.0)
    assert work.compute(0, Compute(ghost, 3), RNG).g is ghost
    assert steps(lr=0.1).train(0, Train(W, 2), RNG).x.tolist() == pytest.approx((W * 0.81).tolist())
