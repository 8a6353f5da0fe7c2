"""Zhang, Choromanska and LeCun, Deep learning with Elastic Averaging SGD, NIPS 2015."""

import numpy as np
import pytest

from paceline.core.scheme import make
from paceline.schemes import eamsgd, easgd
from paceline.sim import LocalSteps, Simulation, plain_sgd
from tests.papers.sentences import says

GOALS = np.array([1.0, 5.0, -3.0])


def synchronous(name: str, rounds: int, **parameters: float) -> Simulation:
    work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w - GOALS[rank], lr=0.1)
    scheme = make(name, {"synchronous": True, "tau": 1, **parameters})
    sim = Simulation(scheme, np.zeros(1), work, workers=3, servers=1, update_factory=plain_sgd(0.1))
    return sim.run(stop=lambda sim: min(sim.worker(r).round for r in range(3)) == rounds)


def test_the_centre_is_a_moving_average_of_the_workers_in_space_and_time() -> None:
    """Equation 5: x~ <- (1 - beta) x~ + beta (1/p sum x_i), where "alpha = beta / p" and "beta = 0.9"."""
    assert says(easgd, "one alpha = beta / p with beta = 0.9 for p workers")
    x, centre = np.zeros(3), 0.0
    for _ in range(8):
        x = x - 0.1 * (x - GOALS)
        x, centre = x - 0.3 * (x - centre), 0.1 * centre + 0.9 * x.mean()
    assert synchronous("easgd", 8).model() == pytest.approx(centre)


def test_with_equal_rates_the_forces_cancel() -> None:
    """ "with equal rates the forces cancel": the "elastic symmetry" of Section 2."""
    assert says(easgd, "with equal rates the forces cancel")
    still = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w * 0.0)
    sim = Simulation(make("easgd", {"synchronous": True, "tau": 1}), np.zeros(1), still, workers=3, servers=1)
    for rank in range(3):
        sim.worker(rank).x = GOALS[rank : rank + 1]
    sim.run(stop=lambda sim: min(sim.worker(r).round for r in range(3)) == 9)
    total = sim.model()[0] + sum(sim.worker(r).x[0] for r in range(3))
    assert total == pytest.approx(GOALS.sum())
    assert sim.model()[0] == pytest.approx(GOALS.sum() / 4, rel=1e-2), "all meet in the mean of the four"


def test_the_workers_may_stay_apart_which_is_the_exploration() -> None:
    """ "A larger alpha ties closer; a smaller one explores more." """
    assert says(easgd, "A larger alpha ties closer; a smaller one explores more.")

    def spread(alpha: float) -> float:
        sim = synchronous("easgd", 100, alpha=alpha)
        x = [sim.worker(r).x[0] for r in range(3)]
        return float(max(x) - min(x))

    assert spread(0.01) > 3 * spread(0.3) > 1.0


def test_momentum_looks_ahead() -> None:
    """Algorithm 2: "v_i <- delta v_i - eta g_i(x_i + delta v_i)"."""
    assert says(eamsgd, "v_i <- delta v_i - eta g_i(x_i + delta v_i)")
    x, v, centre = np.zeros(3), np.zeros(3), 0.0
    for _ in range(8):
        v = 0.5 * v - 0.1 * (x + 0.5 * v - GOALS)
        x = x + v
        x, centre = x - 0.3 * (x - centre), centre + 0.3 * (x - centre).sum()
    assert synchronous("eamsgd", 8, delta=0.5).model() == pytest.approx(centre)
