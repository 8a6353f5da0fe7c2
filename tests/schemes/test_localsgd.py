from random import Random
from typing import Any

import numpy as np
import pytest

from paceline.core.effects import Train, Trained
from paceline.core.scheme import make
from paceline.sim import LocalSteps, Simulation

GOALS = np.array([[1.0, 0.0], [5.0, 2.0]])


class Counted(LocalSteps):
    """Two workers with unlike goals; notes how many steps each round of worker 0 had."""

    def __init__(self, lr: float = 0.1) -> None:
        super().__init__(lambda rank, rng: 1.0, lambda rank, w: w - GOALS[rank], samples=lambda rank: 1 + rank, lr=lr)
        self.steps: list[int] = []

    def train(self, rank: int, wanted: Train, rng: Random) -> Trained:
        if rank == 0:
            self.steps.append(wanted.steps)
        return super().train(rank, wanted, rng)


def run(name: str, rounds: int, servers: int = 1, lr: float = 0.1, **parameters: Any) -> tuple[Any, list[int]]:
    work = Counted(lr)
    sim = Simulation(make(name, parameters), np.zeros(2), work, workers=2, servers=servers)
    sim.run(stop=lambda sim: min(sim.worker(r).round for r in (0, 1)) == rounds)
    return sim.model(), work.steps


@pytest.mark.parametrize("servers", [0, 1, 2])
def test_the_average_is_weighted_by_samples(servers: int) -> None:
    w = np.zeros(2)
    for _ in range(4):
        x = [goal + 0.9**3 * (w - goal) for goal in GOALS]
        w = (x[0] + 2 * x[1]) / 3
    assert run("localsgd", 4, servers, tau=3)[0] == pytest.approx(w, rel=1e-12)


def test_post_local_switches_at_a_step_or_at_a_number_of_samples_of_all_workers() -> None:
    assert run("postlocal", 7, tau=4, switch="5 steps")[1][:7] == [1] * 5 + [4] * 2
    assert run("postlocal", 7, tau=4, switch="9 samples")[1][:7] == [1] * 3 + [4] * 4, "3 samples a round by all"


def test_post_local_sgd_is_local_sgd_when_it_switches_at_once() -> None:
    local, post = run("localsgd", 5, tau=4)[0], run("postlocal", 5, tau=4, switch="0 steps")[0]
    assert np.array_equal(local, post)


@pytest.mark.parametrize("switch", ["100", "10 epochs", "-3 steps", "many steps"])
def test_a_switch_without_number_and_unit_is_refused(switch: str) -> None:
    with pytest.raises(ValueError, match="write '500 steps'"):
        make("postlocal", {"switch": switch})


def test_slow_momentum_goes_on_where_the_averages_went() -> None:
    w, m = np.zeros(2), np.zeros(2)
    for _ in range(5):
        x = [goal + 0.9**3 * (w - goal) for goal in GOALS]
        m = 0.7 * m + (x[0] + 2 * x[1]) / 3 - w
        w = w + 0.8 * m
    assert run("slowmo", 5, tau=3, beta=0.7, alpha=0.8)[0] == pytest.approx(w, rel=1e-12)


def test_without_slow_momentum_it_is_local_sgd() -> None:
    assert np.array_equal(run("slowmo", 5, tau=3, beta=0.0)[0], run("localsgd", 5, tau=3)[0])
