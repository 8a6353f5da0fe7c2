"""PowerSGD's arithmetic on several workers, whose means are taken by hand."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from paceline.engine.lowrank import LowRank
from paceline.engine.vector import Flat

SHAPES = [(12, 20), (12,), (4, 3, 5, 5), (2, 3)]
LENGTH = sum(map(math.prod, SHAPES))


def mean(vectors: list[Flat]) -> Flat:
    return Flat(torch.stack([v.value() for v in vectors]).mean(0))


def round_of(workers: list[LowRank], gradients: list[Tensor]) -> list[Tensor]:
    p = mean([worker.factor(Flat(g)) for worker, g in zip(workers, gradients, strict=True)])
    q = mean([worker.cofactor(p) for worker in workers])
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


def test_gradients_of_zero_do_not_end_it() -> None:
    workers = [LowRank(SHAPES, 1)]
    assert round_of(workers, [torch.zeros(LENGTH)])[0].abs().max() == 0
    (again,) = round_of(workers, gradients(1, 1))
    assert torch.isfinite(again).all()
    assert again[:240].abs().max() > 0
