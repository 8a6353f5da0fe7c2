"""Lin et al., Don't Use Large Mini-Batches, Use Local SGD, ICLR 2020."""

import numpy as np
import pytest

from paceline.core.scheme import make
from paceline.schemes import postlocal
from paceline.sim import LocalSteps, Simulation
from tests.papers.sentences import says

GOALS = np.array([[1.0, 2.0], [5.0, 0.0]])


def test_before_the_switch_it_is_mini_batch_sgd_also_with_momentum() -> None:
    """ "One local step and an average are a step of BSP, also with momentum" """
    assert says(postlocal, "One local step and an average are a step of BSP, also with momentum")
    work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w - GOALS[rank], lr=0.1, momentum=0.9)
    sim = Simulation(make("postlocal", {"switch": "30 steps"}), np.zeros(2), work, workers=2, servers=1)
    sim.run(stop=lambda sim: min(sim.worker(r).round for r in (0, 1)) == 12)
    w, v = np.zeros(2), np.zeros(2)
    for _ in range(12):
        v = 0.9 * v + w - GOALS.mean(axis=0)
        w = w - 0.1 * v
    assert sim.model() == pytest.approx(w)


def test_everybody_switches_at_the_same_round() -> None:
    """ "Everybody switches at the same round" """
    assert says(postlocal, "Everybody switches at the same round")
    for switch in ("7 steps", "50 samples"):
        work = LocalSteps(lambda rank, rng: rng.uniform(0.5, 3.0), samples=lambda rank: 1 + 2 * rank)
        sim = Simulation(make("postlocal", {"switch": switch, "tau": 4}), np.ones(2), work, workers=3, servers=1)
        sim.run(stop=lambda sim: min(sim.worker(r).round for r in range(3)) == 20)
        switched = {"7 steps": 7, "50 samples": 6}[switch]
        done = switched + (20 - switched) * 4
        assert all(done <= steps <= done + 4 for steps in sim.steps)
