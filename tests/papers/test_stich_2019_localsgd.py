"""Stich, Local SGD Converges Fast and Communicates Little, ICLR 2019."""

import numpy as np
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.scheme import make
from paceline.schemes import localsgd
from paceline.sim import LocalSteps, Simulation, plain_sgd
from tests.papers.sentences import says

GOALS = np.array([1.0, 5.0, -3.0])


def model(name: str, seconds: float, **parameters: int) -> float:
    work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w - GOALS[rank], lr=0.1)
    rule = plain_sgd(0.1)
    sim = Simulation(make(name, parameters), np.zeros(1), work, workers=3, servers=1, update_factory=rule)
    return float(sim.run(until=seconds).model()[0])


def test_with_one_local_step_and_plain_sgd_it_is_bsp() -> None:
    """ "tau = 1 with plain SGD is BSP." """
    assert says(localsgd, "tau = 1 with plain SGD is BSP.")
    assert model("localsgd", 20.5, tau=1) == pytest.approx(model("bsp", 20.5), rel=1e-12)


def test_it_communicates_a_tau_th_of_the_times() -> None:
    """ "x_i <- x_i - eta grad f_i(x_i)" tau times, then one Mean: T / H rounds for T steps (Section 1)."""
    sims = {
        tau: Simulation(
            make("localsgd", {"tau": tau}), np.zeros(1), LocalSteps(lambda rank, rng: 1.0), workers=2, servers=0
        )
        for tau in (1, 8)
    }
    rounds = {tau: sim.run(until=96.5).worker(0).round for tau, sim in sims.items()}
    assert rounds == {1: 96, 8: 12}
