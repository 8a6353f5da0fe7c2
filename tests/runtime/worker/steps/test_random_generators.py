"""Workers draw different random numbers, and the same in every run."""

from __future__ import annotations

import torch

from paceline.runtime.worker.steps.random_generators import differ, seed_generators


def test_ranks_and_lives_draw_different_numbers_and_worker_0_those_of_a_script_alone() -> None:
    def drawn(rank: int, incarnation: int, seed: int = 0, script: int = 7) -> float:
        torch.manual_seed(script)
        differ(seed, rank, incarnation)
        return torch.rand(1).item()

    assert drawn(0, 0) == torch.rand(1, generator=torch.Generator().manual_seed(7)).item()
    numbers = [drawn(0, 0), drawn(1, 0), drawn(2, 0), drawn(1, 1), drawn(0, 1), drawn(1, 0, seed=1)]
    numbers.append(drawn(1, 0, script=8))
    assert len(set(numbers)) == len(numbers)
    assert drawn(1, 0) == numbers[1]


def test_so_do_the_workers_of_paceline_train() -> None:
    def drawn(*place: int) -> float:
        seed_generators(*place)
        return torch.rand(1).item()

    numbers = [drawn(3, 0, 0), drawn(3, 1, 0), drawn(3, 0, 1), drawn(4, 0, 0)]
    assert len(set(numbers)) == len(numbers)
    assert drawn(3, 1, 0) == numbers[1]
