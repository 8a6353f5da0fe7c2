"""PowerSGD's arithmetic on several workers, whose means are taken by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.engine.lowrank import LowRank
from paceline.engine.vector import Flat

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


def test_what_is_left_counts_as_much_as_in_its_own_round_whatever_its_worker_weighs_later() -> None:
    """Otherwise a worker that weighed little would take back, once it weighs much, what the others had done."""
    workers = [LowRank(SHAPES, 1) for _ in range(3)]
    total, arrived = torch.zeros(LENGTH, dtype=torch.float64), torch.zeros(LENGTH, dtype=torch.float64)
    for seed, weights in enumerate([(1.0, 1.0, 30.0), (30.0, 1.0, 1.0), (2.0, 0.0, 5.0), (1.0, 8.0, 0.5)] * 3):
        total += torch.stack([g * weight for g, weight in zip(gradients(seed), weights, strict=True)]).sum(0)
        arrived += round_of(workers, gradients(seed), weights)[0] * sum(weights)
    left = [worker.left * weight for worker, weight in zip(workers, weights, strict=True) if worker.left is not None]
    torch.testing.assert_close(arrived + torch.stack(left).sum(0), total, rtol=1e-3, atol=1e-2)


def test_gradients_of_zero_do_not_end_it() -> None:
    workers = [LowRank(SHAPES, 1)]
    assert round_of(workers, [torch.zeros(LENGTH)])[0].abs().max() == 0
    (again,) = round_of(workers, gradients(1, 1))
    assert torch.isfinite(again).all()
    assert again[:240].abs().max() > 0
