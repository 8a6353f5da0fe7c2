"""Assran et al., Stochastic Gradient Push for Distributed Deep Learning, ICML 2019."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.core.local import topology
from paceline.core.scheme import make
from paceline.core.vector import Ghost
from paceline.schemes import sgp
from paceline.sim import LocalSteps, Simulation, plain_sgd
from tests.papers.sentences import says


def test_after_as_many_rounds_as_there_are_hops_everybody_has_heard_of_everybody() -> None:
    """ "2^0, 2^1, ... 2^floor(log2(n - 1)) places ahead, one of them a round, in turn" """
    assert says(topology, "2^0, 2^1, ... 2^floor(log2(n - 1)) places ahead, one of them a round, in turn")
    assert says(topology, "after as many rounds as there are hops everybody has heard of everybody")
    n = 8
    work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w * 0.0)
    sim = Simulation(make("sgp", {}), np.zeros(2), work, workers=n, servers=0)
    for rank in range(n):
        sim.worker(rank).w = np.full(2, float(rank))
    sim.run(until=3.5)  # three rounds of hops 1, 2 and 4: on a power of two they average exactly
    models = [sim.worker(rank).w[0] for rank in range(n)]
    assert models == pytest.approx([(n - 1) / 2] * n)


def test_the_sums_of_x_and_w_change_by_gradients_alone() -> None:
    """ "the mixing matrix is column-stochastic (Assran et al. 2019, Section 3), and the sums of x and of w over workers
    and messages change by gradients alone" """
    assert says(sgp, "column-stochastic (Assran et al. 2019, Section 3)")
    assert says(sgp, "the sums of x and of w over workers and messages change by gradients alone")
    work = LocalSteps(lambda rank, rng: rng.uniform(0.5, 2.0), lambda rank, w: w * 0.0 - 1.0)
    sim = Simulation(
        make("sgp", {"tau": 2}), np.zeros(2), work, workers=5, servers=0, update_factory=plain_sgd(0.1)
    ).run(until=40)  # fmt: skip
    for rank in range(5):
        sim.leave(rank)
    sim.run()
    assert sum(sim.worker(rank).model()[1] for rank in range(5)) == pytest.approx(5.0)
    assert sim.model() == pytest.approx([0.1 * sum(sim.steps) / 5] * 2)


def test_a_worker_sends_one_model_a_round_however_many_there_are() -> None:
    """ "a worker sends one model a round however many there are, and waits for one neighbour" """
    assert says(sgp, "a worker sends one model a round however many there are, and waits for one neighbour")

    def bytes_a_step(workers: int) -> float:
        work = LocalSteps(lambda rank, rng: 1.0)
        sim = Simulation(make("sgp", {}), Ghost(100), work, workers=workers, servers=0).run(until=50)
        return sum(party.sent for party in sim.world.workers) / sum(sim.steps)

    assert bytes_a_step(4) == bytes_a_step(16) == 400
