from typing import Any

import pytest

from paceline.core.scheme import make
from paceline.core.vector import Ghost
from paceline.sim import Simulation
from tests.role_driver import server
from tests.schemes.clock_watch import Watched


def watch(s: int, seconds: Any, workers: int = 6) -> tuple[Simulation, Watched]:
    work = Watched(seconds)
    work.sim = Simulation(make("ssp", {"staleness": s}), Ghost(64), work, workers=workers, servers=2, seed=s)
    return work.sim, work


def test_a_worker_s_clocks_ahead_waits_until_the_slowest_moves() -> None:
    ssp = server("ssp", workers=3, staleness=1)
    assert set(ssp.push(0, clock=1)) == {0}
    assert ssp.push(0, clock=2) == {}
    assert set(ssp.push(1, clock=1)) == {1}
    assert set(ssp.push(2, clock=1)) == {0, 2}
    assert ssp.decisions() == [(0, "wait", "2 clocks ahead of workers 1, 2, bound 1")]


@pytest.mark.parametrize("s", [0, 1, 3, 7])
def test_no_worker_ever_starts_a_step_more_than_s_clocks_ahead(s: int) -> None:
    sim, work = watch(s, lambda rank, rng: rng.expovariate(1 / (1 + rank)))
    sim.run(until=300)
    assert max(work.ahead) == s, "the bound is kept, and used"
    assert min(work.ahead) == 0


def test_a_bound_of_zero_is_lock_step() -> None:
    sim, work = watch(0, lambda rank, rng: rng.uniform(0.1, 2.0))
    sim.run(until=200, stop=lambda sim: max(sim.steps) - min(sim.steps) > 1)
    assert sim.now > 190
    assert set(work.ahead) == {0}


def test_everybody_moves_at_the_pace_of_a_worker_that_is_always_slow() -> None:
    sim, _ = watch(3, lambda rank, rng: 10.0 if rank == 5 else 1.0)
    sim.run(until=1000)
    assert sim.steps[5] == 99
    assert all(sim.steps[5] + 3 <= steps <= sim.steps[5] + 4 for steps in sim.steps[:5])


def test_a_straggler_that_leaves_releases_those_who_wait() -> None:
    sim, _ = watch(2, lambda rank, rng: 100.0 if rank == 5 else 1.0)
    sim.run(until=50)
    assert sim.steps == [3, 3, 3, 3, 3, 0]
    sim.leave(5)
    sim.run(until=150)
    assert sim.steps[5] == 1
    assert min(sim.steps[:5]) > 45
