"""Kolehmainen et al., NoLoCo: No-all-reduce Low Communication Training Method for Large Models (2025)."""

from typing import Any

import numpy as np
import pytest

from paceline.core.effects import Mean
from paceline.core.scheme import make
from paceline.schemes import noloco
from paceline.sim import LocalSteps, Simulation
from tests.conformance.test_sim import watch
from tests.papers.sentences import says

WORKERS = 6


def run(goal: Any, *, rounds: int, apart: float = 0.0, **parameters: Any) -> Simulation:
    """Six workers with plain gradients to `goal(rank)`, that begin `apart` from one another."""
    work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w - goal(rank), lr=0.1)
    sim = Simulation(make("noloco", {"h": 3, **parameters}), np.zeros(1), work, workers=WORKERS, servers=0)
    for rank in range(WORKERS):
        sim.worker(rank).w = np.array([apart * rank])
    return sim.run(stop=lambda sim: min(sim.worker(rank).k for rank in range(WORKERS)) == rounds)


def test_the_mean_of_all_moves_as_dilocos_weights_would() -> None:
    """ "so the mean of all phi_i moves by beta and alpha alone, as DiLoCo's weights would" """
    assert says(noloco, "so the mean of all phi_i moves by beta and alpha alone, as DiLoCo's weights would")
    w, delta = 2.5, 0.0  # the mean of 0..5
    for _ in range(8):
        delta = 0.5 * delta + 0.7 * (1 - 0.9**3) * (10.0 - w)
        w += delta
    sim = run(lambda rank: 10.0, rounds=8, apart=1.0)
    assert float(np.mean([sim.worker(rank).w[0] for rank in range(WORKERS)])) == pytest.approx(w)


def spread(**parameters: Any) -> float:
    """How far apart workers are that pull to goals of their own."""
    sim = run(lambda rank: float(rank), rounds=60, **parameters)
    return float(np.ptp([sim.worker(rank).w[0] for rank in range(WORKERS)]))


def test_the_term_with_gamma_pulls_the_workers_together() -> None:
    """ "The term with gamma pulls the two together." """
    assert says(noloco, "The term with gamma pulls the two together.")
    assert spread(gamma=0.7) < 0.5 * spread(gamma=0.0)


def test_there_is_no_all_reduce() -> None:
    """The paper: no collective communication."""
    means: list[Any] = []
    sim = Simulation(make("noloco", {"h": 2}), np.zeros(1), LocalSteps(lambda rank, rng: 1.0), workers=4, servers=0)
    for rank in range(4):
        watch(sim, rank, lambda rank, effect: means.append(effect) if isinstance(effect, Mean) else None)
    sim.run(until=30)
    assert min(sim.worker(rank).k for rank in range(4)) > 5
    assert means == []
