"""Wang et al., SlowMo: Improving Communication-Efficient Distributed SGD with Slow Momentum, ICLR 2020."""

from typing import Any

import numpy as np
import pytest

from paceline.core.scheme import make
from paceline.schemes import slowmo
from paceline.sim import LocalSteps, Simulation
from tests.papers.sentences import says


def run(rounds: int, lr: float = 0.1, **parameters: Any) -> Simulation:
    work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w - 1.0 - rank, lr=lr)
    sim = Simulation(make("slowmo", {"tau": 4, **parameters}), np.zeros(1), work, workers=2, servers=1)
    return sim.run(stop=lambda sim: min(sim.worker(r).round for r in (0, 1)) == rounds)


def test_the_slow_update_is_that_of_algorithm_1() -> None:
    """ "u <- beta u + (x - x') / gamma" and "x <- x - alpha gamma u" """
    assert says(slowmo, "u <- beta u + (x - x') / gamma")
    assert says(slowmo, "x <- x - alpha gamma u")
    gamma, beta, alpha, x, u = 0.1, 0.6, 0.9, 0.0, 0.0
    for _ in range(6):
        averaged = 1.5 + (1 - gamma) ** 4 * (x - 1.5)
        u = beta * u + (x - averaged) / gamma
        x = x - alpha * gamma * u
    assert run(6, beta=beta, alpha=alpha).model() == pytest.approx([x])


def test_every_worker_keeps_the_same_slow_momentum() -> None:
    """ "Every worker keeps the same u." """
    assert says(slowmo, "Every worker keeps the same u.")
    sim = run(6)
    assert float(sim.worker(0).m[0]) == float(sim.worker(1).m[0]) != 0.0


def test_in_the_long_run_a_round_moves_alpha_over_one_minus_beta_times_as_far() -> None:
    """ "in the long run a round moves alpha / (1 - beta) times as far" """
    assert says(slowmo, "in the long run a round moves alpha / (1 - beta) times as far")
    work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w * 0.0 + 1.0, lr=0.1)
    scheme = make("slowmo", {"tau": 5, "beta": 0.75, "alpha": 0.5})
    sim = Simulation(scheme, np.zeros(1), work, workers=2, servers=1)
    at = [sim.run(stop=lambda sim, n=n: sim.worker(0).round == n).worker(0).w[0] for n in (60, 61)]
    assert at[0] - at[1] == pytest.approx(5 * 0.1 * 0.5 / 0.25)
