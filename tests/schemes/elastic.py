"""Elastic averaging, by hand and in a simulation."""

from typing import Any

import numpy as np

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.scheme import make
from paceline.sim import LocalSteps, Simulation, plain_sgd

GOALS = np.array([1.0, 5.0, -3.0])


def run(name: str, servers: int, rounds: int, **parameters: Any) -> Simulation:
    work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w - GOALS[rank], lr=0.1)
    sim = Simulation(
        make(name, parameters), np.zeros(1), work, workers=3, servers=servers, update_factory=plain_sgd(0.1)
    )
    return sim.run(stop=lambda sim: min(sim.worker(r).round for r in range(3)) == rounds)
