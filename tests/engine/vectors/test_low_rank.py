"""PowerSGD's arithmetic on several workers, whose means are taken by hand."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from paceline.engine.vectors.flat import Flat
from paceline.engine.vectors.low_rank import LowRank

SHAPES = [(12, 20), (12,), (4, 3, 5, 5), (2, 3)]
LENGTH = sum(map(math.prod, SHAPES))


def mean(vectors: list[Flat], weights: Sequence[float]) -> Flat:
    total = sum(weight * v.value() for v, weight in zip(vectors, weights, strict=True))
    return Flat(total / sum(weights))  # type: ignore[arg-type]


def round_of(workers: list[LowRank], gradients: list[Tensor], weights: Sequence[float] = ()) -> list[Tensor]:
    weights = weights or [1.0] * len(workers)
    turns = zip(workers, gradients, weights, strict=True)
    p = mean([worker.factor(Flat(g), weight) for worker, g, weight in turns], weights)
    q = mean([worker.cofactor(p) for worker in workers], weights)
    return [worker.result(q).value().clone() for worker in workers]


def gradients(seed: int, count: int = 3) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(LENGTH, generator=generator) for _ in range(count)]


def test_all_workers_get_the_same() -> None:
    workers = [LowRank(SHAPES, 2) for _ in range(3)]
    one, two, three = round_of(workers, gradients(1))
    assert torch.equal(one, two)
    assert torch.equal(one, three)


def test_what_is_no_matrix_or_would_not_shrink_is_exact() -> None:
    workers = [LowRank(SHAPES, 2) for _ in range(3)]
    wanted = torch.stack(gradients(1)).mean(0)
    (got, *_) = round_of(workers, gradients(1))
    for where in (slice(240, 252), slice(LENGTH - 6, LENGTH)):
        torch.testing.assert_close(got[where], wanted[where])


def test_a_mean_of_low_rank_is_found_at_once() -> None:
    generator = torch.Generator().manual_seed(3)
    low = torch.zeros(LENGTH)
    low[:240] = (torch.randn(12, 2, generator=generator) @ torch.randn(2, 20, generator=generator)).flatten()
    apart = torch.randn(240, generator=generator)
    mine, yours = low.clone(), low.clone()
    mine[:240] += apart
    yours[:240] -= apart
    (got, _) = round_of([LowRank(SHAPES, 2), LowRank(SHAPES, 2)], [mine, yours])
    torch.testing.assert_close(got, low, rtol=1e-4, atol=1e-4)


def test_the_sum_of_the_means_and_what_is_left_on_average_is_the_sum_of_all_gradients() -> None:
    workers = [LowRank(SHAPES, 1) for _ in range(3)]
    total, arrived = torch.zeros(LENGTH, dtype=torch.float64), torch.zeros(LENGTH, dtype=torch.float64)
    for seed in range(10):
        total += torch.stack(gradients(seed)).mean(0)
        arrived += round_of(workers, gradients(seed))[0]
    left = torch.stack([worker.left for worker in workers if worker.left is not None]).mean(0)
    torch.testing.assert_close(arrived + left, total, rtol=1e-3, atol=1e-3)


def left_of(workers: list[LowRank], weights: Sequence[float]) -> Tensor:
    left = [worker.left if worker.left is not None else torch.zeros(LENGTH) for worker in workers]
    return torch.stack([v * weight for v, weight in zip(left, weights, strict=True)]).sum(0)


def test_a_round_brings_what_is_there_or_leaves_it_whatever_its_weights() -> None:
    workers = [LowRank(SHAPES, 1) for _ in range(3)]
    for seed, weights in enumerate([(1.0, 1.0, 30.0), (30.0, 1.0, 1.0), (2.0, 0.0, 5.0), (1.0, 8.0, 0.5)] * 3):
        there = torch.stack([g * weight for g, weight in zip(gradients(seed), weights, strict=True)]).sum(0)
        there += left_of(workers, weights)
        arrived = round_of(workers, gradients(seed), weights)[0] * sum(weights)
        torch.testing.assert_close(arrived + left_of(workers, weights), there, rtol=1e-3, atol=1e-3)


def test_whoever_counts_nothing_keeps_what_it_had_left() -> None:
    workers = [LowRank(SHAPES, 1) for _ in range(2)]
    round_of(workers, gradients(1, 2))
    assert workers[0].left is not None
    before = workers[0].left.clone()
    round_of(workers, gradients(2, 2), (0.0, 1.0))
    assert torch.equal(workers[0].left, before)


@pytest.mark.parametrize("seed", range(3))
def test_workers_that_want_different_things_settle_while_their_weights_change(seed: int) -> None:
    """As in ESync: each goes n_i steps towards its own target, and weighs n_i. With what the paper leaves, a worker's
    difference from the others comes back with another weight, and the weights never settle."""
    rng, targets = random.Random(seed), gradients(seed)
    workers, w, distances = [LowRank(SHAPES, 2) for _ in targets], torch.zeros(LENGTH), []
    for _ in range(120):
        n = [rng.choice((1, 2, 20)) for _ in targets]
        deltas = [(1 - 0.98**steps) * (target - w) for steps, target in zip(n, targets, strict=True)]
        w = w + round_of(workers, deltas, n)[0]
        distances.append(float((w - torch.stack(targets).mean(0)).norm()))
    assert max(distances[60:]) < 2 * distances[0]  # with what the paper leaves: 50 times


def test_gradients_of_zero_do_not_end_it() -> None:
    workers = [LowRank(SHAPES, 1)]
    assert round_of(workers, [torch.zeros(LENGTH)])[0].abs().max() == 0
    (again,) = round_of(workers, gradients(1, 1))
    assert torch.isfinite(again).all()
    assert again[:240].abs().max() > 0
