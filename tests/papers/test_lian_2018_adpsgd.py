"""Lian et al., Asynchronous Decentralized Parallel Stochastic Gradient Descent, ICML 2018."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.core.scheme import make
from paceline.core.vector import Ghost
from paceline.schemes import adpsgd
from paceline.sim import LocalSteps, Simulation, plain_sgd
from tests.papers.sentences import says


def test_the_fast_never_wait_for_the_slow() -> None:
    """ "Use it on workers of uneven speed without servers: the fast never wait for the slow." """
    assert says(adpsgd, "the fast never wait for the slow")
    work = LocalSteps(lambda rank, rng: 1.0 if rank else 100.0)
    sim = Simulation(make("adpsgd", {}), Ghost(4), work, workers=4, servers=0).run(until=1000.5)
    assert sim.steps == [10, 1000, 1000, 1000]


@pytest.mark.parametrize("topology", ["ring", "complete"])
def test_the_mean_of_all_models_is_preserved_while_gradients_are_not(topology: str) -> None:
    """ "so the mean of all models is preserved": what moves it is gradients, each by its n-th part."""
    assert says(adpsgd, "so the mean of all models is preserved")
    n, steps = 6, 50
    work = LocalSteps(lambda rank, rng: rng.uniform(0.9, 1.1), lambda rank, w: w * 0.0 - 1.0)
    sim = Simulation(
        make("adpsgd", {"topology": topology}), np.zeros(2), work, workers=n, servers=0, update_factory=plain_sgd(0.1)
    )
    sim.run(stop=lambda sim: min(sim.steps) >= steps)
    for rank in range(n):
        sim.leave(rank)
    sim.run()
    assert sim.model() == pytest.approx([0.1 * sum(sim.steps) / n] * 2, rel=1e-9)


def test_it_settles_at_the_optimum_of_all_though_each_sees_its_own_data() -> None:
    work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w - rank)
    sim = Simulation(
        make("adpsgd", {}), np.zeros(2), work, workers=5, servers=0, update_factory=plain_sgd(0.02)
    ).run(until=1500)  # fmt: skip
    assert sim.model() == pytest.approx([2.0, 2.0], abs=0.1)
