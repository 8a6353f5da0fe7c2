"""Blot et al., Gossip Training for Deep Learning, 2016."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.core.local.push_sum import Holder
from paceline.core.scheme import make
from paceline.core.vector import Ghost
from paceline.schemes import gosgd
from paceline.sim import LocalSteps, Simulation
from tests.papers.sentences import says


def test_nobody_waits() -> None:
    """ "everybody trains alone, and now and then tells somebody what it knows. Nobody waits." """
    assert says(gosgd, "everybody trains alone, and now and then tells somebody what it knows. Nobody waits.")
    work = LocalSteps(lambda rank, rng: (0.1, 1.0, 30.0)[rank])
    sim = Simulation(make("gosgd", {"p": 0.5}), Ghost(4), work, workers=3, servers=0).run(until=300.05)
    assert sim.steps == [3000, 300, 10]


def test_the_sum_of_the_weights_is_always_1() -> None:
    """ "The sum of the weights is always 1: half of w_m goes with every message, and messages under way count." """
    assert says(gosgd, "The sum of the weights is always 1")
    assert says(gosgd, "half of w_m goes with every message, and messages under way count")
    work = LocalSteps(lambda rank, rng: rng.uniform(0.5, 1.5), lambda rank, w: w * 0.0)
    sim = Simulation(make("gosgd", {"p": 0.5}), np.zeros(2), work, workers=6, servers=0, latency_s=1e-9)
    sums = []
    for until in range(1, 200):
        sim.run(until=until)
        roles = [sim.worker(rank) for rank in range(6)]
        sums.append(sum(role.model()[1] for role in roles if isinstance(role, Holder)))
    assert sums == pytest.approx([1.0] * len(sums), abs=1e-9)


def test_the_higher_p_the_closer_the_workers() -> None:
    """ "The higher p, the closer the workers and the higher the traffic: p models a step and worker." """
    assert says(gosgd, "The higher p, the closer the workers and the higher the traffic: p models a step and worker.")

    def spread(p: float) -> float:
        work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w - rank, lr=0.1)
        sim = Simulation(make("gosgd", {"p": p}), np.zeros(2), work, workers=6, servers=0).run(until=100.5)
        return float(np.ptp([sim.worker(rank).model()[0][0] for rank in range(6)]))

    assert spread(1.0) < spread(0.2) < spread(0.01)
