import numpy as np
import pytest

from paceline.core.scheme import make
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps, Simulation, plain_sgd
from tests.role_driver import server

GOALS = np.random.default_rng(0).normal(size=(4, 12))
SAMPLES = (8, 1, 3, 8)
W0 = np.zeros(12)


def reference(rounds: int, lr: float) -> np.ndarray:
    """One process with the union of all batches."""
    w = W0
    for _ in range(rounds):
        gradients = [n * (w - goal) for n, goal in zip(SAMPLES, GOALS, strict=True)]
        w = w - lr * sum(gradients) / sum(SAMPLES)
    return w


def test_nobody_is_answered_before_the_last_one_pushed() -> None:
    bsp = server("bsp", workers=3)
    assert bsp.push(2, clock=1) == {}
    assert bsp.push(0, clock=1) == {}
    answers = bsp.push(1, clock=1)
    assert set(answers) == {0, 1, 2}
    assert {answer.version for answer in answers.values()} == {1}
    assert [(u.ranks, u.staleness, u.weight) for u in bsp.updates()] == [((0, 1, 2), 0, 1.0)]


def test_unequal_batches_give_the_sample_weighted_mean() -> None:
    bsp = server("bsp")
    bsp.push(0, clock=1, g=1.0, samples=30)
    bsp.push(1, clock=1, g=5.0, samples=10)
    assert bsp.role.w == [-2.0]


def test_a_worker_that_leaves_ends_the_wait_for_it() -> None:
    bsp = server("bsp", workers=3)
    bsp.push(0, clock=1, g=2.0)
    bsp.push(1, clock=1, g=4.0)
    assert set(bsp.gone(2)) == {0, 1}
    assert bsp.role.w == [-3.0]


def run_rounds(servers: int, rounds: int) -> Simulation:
    def done(sim: Simulation) -> bool:
        if servers:
            return min(sim.server(s).clocks.low for s in range(servers)) >= rounds
        return min(sim.worker(rank).t for rank in range(4)) >= rounds

    work = LocalSteps(
        lambda rank, rng: (1 + rank) * rng.uniform(0.5, 1.5), lambda r, w: w - GOALS[r], samples=SAMPLES.__getitem__
    )
    sim = Simulation(make("bsp", {}), W0, work, workers=4, servers=servers, update_factory=plain_sgd(0.2))
    return sim.run(stop=done)


@pytest.mark.parametrize("servers", [0, 1, 3])
def test_bsp_is_sequential_sgd_on_the_union_of_all_batches(servers: int) -> None:
    assert np.abs(run_rounds(servers, 25).model() - reference(25, 0.2)).max() < 1e-12


def test_everybody_makes_the_same_number_of_steps() -> None:
    work = LocalSteps(lambda rank, rng: 1.0 + 3.0 * rank)
    for servers in (0, 2):
        sim = Simulation(make("bsp", {}), Ghost(8), work, workers=3, servers=servers, latency_s=0.0).run(until=71.5)
        assert sim.steps == [11, 10, 10], "ten rounds of 7 s, and the fastest is in its eleventh step"
