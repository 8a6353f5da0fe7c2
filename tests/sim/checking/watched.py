"""Runs that are watched by the invariants."""

from __future__ import annotations

import numpy as np

from paceline.core.scheme import Scheme
from paceline.sim import LocalSteps, Simulation


def run(scheme: Scheme, workers: int = 3, servers: int = 1, until: float = 200.0) -> Simulation:
    work = LocalSteps(lambda rank, rng: 1.0 + rank)
    return Simulation(scheme, np.zeros(4), work, workers=workers, servers=servers, seed=17).run(until=until)
