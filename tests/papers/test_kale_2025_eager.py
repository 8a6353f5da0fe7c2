"""Kale et al., Eager Updates For Overlapped Communication and Computation in DiLoCo (2025)."""

from typing import Any

import numpy as np
import pytest

from paceline.core.scheme import make
from paceline.schemes import diloco
from paceline.sim import LocalSteps, Simulation
from tests.papers.sentences import says


def run(rounds: int, **parameters: Any) -> Simulation:
    """Two workers on 1/2 w^2, from w = 1 on; two local steps of 0.3 make Delta = 0.51 w."""
    work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w, lr=0.3)
    scheme = make("diloco", {"h": 2, "eager": True, **parameters})
    sim = Simulation(scheme, np.ones(1), work, workers=2, servers=1)
    return sim.run(stop=lambda sim: min(sim.worker(r).round for r in (0, 1)) == rounds)


def test_the_mean_replaces_the_estimate() -> None:
    """ "in the sum of all E_i every exchange but the last is its mean" """
    assert says(diloco, "in the sum of all E_i every exchange but the last is its mean")
    work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w - 8.0 * rank, lr=0.5)
    scheme = make("diloco", {"h": 1, "eager": True, "outer_lr": 1.0, "outer_momentum": 0.0})
    sim = Simulation(scheme, np.zeros(1), work, workers=2, servers=1)
    sim.run(stop=lambda sim: min(sim.worker(r).round for r in (0, 1)) == 5)
    # Without momentum y is w, the steps along all means, and the worker's own half of the last Delta.
    for rank in (0, 1):
        role = sim.worker(rank)
        last = role.under_way.v[0]
        assert role.y[0] == pytest.approx(role.w[0] + last / 2)


def delayed(rounds: int) -> float:
    """Where DiLoCo comes to on the same problem if each mean is applied one exchange late, and nothing meanwhile."""
    w, v, late = 1.0, 0.0, 0.0
    for _ in range(rounds):
        v = 0.9 * v + late
        w, late = w - 0.7 * (late + 0.9 * v), 0.51 * w
    return abs(w)


def test_eager_updates_converge_where_delayed_ones_do_not() -> None:
    """The paper: naive delays degrade convergence, eager updates do nearly as well as DiLoCo."""
    assert delayed(60) > 10
    assert abs(run(60).worker(0).y[0]) < 1e-2
    assert abs(run(60, eager=False).model()[0]) < 1e-2
