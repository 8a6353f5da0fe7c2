"""Therien et al., MuLoCo: Muon is a Practical Inner Optimizer for DiLoCo (2025)."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from paceline.core.scheme import make
from paceline.engine.muon import MuonWithAdamW
from paceline.schemes import muloco
from paceline.sim import LocalSteps, Simulation
from tests.papers.sentences import says


def delta_of(optimizer: torch.optim.Optimizer, module: nn.Module, steps: int) -> torch.Tensor:
    """What `steps` local steps change in the hidden matrix, of a teacher's ten classes."""
    generator = torch.Generator().manual_seed(1)
    teacher = torch.randn(32, 10, generator=generator)
    matrix = module[2].weight  # type: ignore[index]
    before = matrix.detach().clone()
    for _ in range(steps):
        x = torch.randn(16, 32, generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x), (x @ teacher).argmax(1)).backward()
        optimizer.step()
    return before - matrix.detach()


def effective_rank(matrix: torch.Tensor) -> float:
    """The sum of the squares of the singular values over the largest of them."""
    squares = torch.linalg.svdvals(matrix).square()
    return float(squares.sum() / squares.max())


def test_no_few_directions_of_a_delta_outweigh_the_others() -> None:
    """ "so no few directions of a worker's Delta outweigh the others" """
    assert says(muloco, "so no few directions of a worker's Delta outweigh the others")
    torch.manual_seed(3)
    one = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    other = copy.deepcopy(one)
    by_muon = delta_of(MuonWithAdamW(one, 0.01, weight_decay=0.0), one, 10)
    by_adamw = delta_of(torch.optim.AdamW(other.parameters(), 0.01, weight_decay=0.0), other, 10)
    assert effective_rank(by_muon) > 3 * effective_rank(by_adamw)


def test_the_outer_step_is_nesterovs() -> None:
    """ "u <- mu u + Delta;  theta <- theta - eta (Delta + mu u)", with eta = 0.7 and mu = 0.6"""
    assert says(muloco, "u <- mu u + Delta; theta <- theta - eta (Delta + mu u)")
    assert says(muloco, "H = 30, eta = 0.7 and mu = 0.6 are the defaults")
    work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w * 0.0 + 1.0, lr=0.01)
    sim = Simulation(make("muloco", {}), np.zeros(1), work, workers=2, servers=1)
    sim.run(stop=lambda sim: min(sim.worker(rank).round for rank in (0, 1)) == 5)
    theta, u = 0.0, 0.0
    for _ in range(5):
        u = 0.6 * u + 0.3
        theta -= 0.7 * (0.3 + 0.6 * u)
    assert sim.model() == pytest.approx([theta])
