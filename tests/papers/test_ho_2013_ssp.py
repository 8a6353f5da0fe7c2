"""Ho et al., More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server, NIPS 2013."""

from random import Random

import numpy as np
import pytest

from paceline.core.effects import Compute, Computed
from paceline.core.scheme import make
from paceline.core.vector import Ghost
from paceline.schemes import ssp
from paceline.sim import LocalSteps, Simulation, plain_sgd
from tests.papers.sentences import says


@pytest.mark.parametrize("s", [0, 2, 5])
def test_the_fastest_and_the_slowest_are_at_most_s_clocks_apart(s: int) -> None:
    """Section 3: "the fastest and slowest threads must be <= s clocks apart"."""
    assert says(ssp, '(Ho et al., Section 3: "the fastest and slowest threads must be <= s clocks apart")')
    apart: list[int] = []

    class Noted(LocalSteps):
        def compute(self, rank: int, wanted: Compute, rng: Random) -> Computed:
            working = [sim.server(0).clocks[rank] for rank in range(8)]
            apart.append(working[rank] - min(working))
            return super().compute(rank, wanted, rng)

    work = Noted(lambda rank, rng: rng.lognormvariate(0, 1))
    sim = Simulation(make("ssp", {"staleness": s}), Ghost(4), work, workers=8, seed=s)
    sim.run(until=300)
    assert max(apart) == s


@pytest.mark.parametrize("s", [0, 1, 4])
def test_a_worker_reads_every_update_up_to_clock_c_less_s_its_own_included(s: int) -> None:
    """ "What a worker reads includes every update up to clock c - s, its own included." """
    assert says(ssp, "includes every update up to clock c - s, its own included")
    workers, seen = 4, [0] * 4

    class Counted(LocalSteps):
        """Element j of the model counts the updates of worker j."""

        def compute(self, rank: int, wanted: Compute, rng: Random) -> Computed:
            clock = sim.worker(rank).clock
            assert wanted.w[rank] == clock
            assert min(wanted.w) >= clock - s
            seen[rank] += 1
            return super().compute(rank, wanted, rng)

    work = Counted(lambda rank, rng: (1 + rank) * rng.uniform(0.5, 2.0), lambda rank, w: -np.eye(workers)[rank])
    scheme = make("ssp", {"staleness": s})
    sim = Simulation(scheme, np.zeros(workers), work, workers=workers, servers=2, update_factory=plain_sgd(1.0))
    sim.run(until=200)
    assert min(seen) > 20


def test_a_bound_of_zero_is_lock_step_and_a_bound_without_end_is_asp() -> None:
    """ "s = 0 is lock-step, s = infinity is ASP." """
    assert says(ssp, "s = 0 is lock-step, s = infinity is ASP.")

    def steps(name: str, **parameters: int) -> list[int]:
        work = LocalSteps(lambda rank, rng: (1 + rank) * rng.uniform(0.5, 1.5))
        return Simulation(make(name, parameters), Ghost(4), work, workers=4, seed=1).run(until=100).steps

    assert steps("ssp", staleness=10**9) == steps("asp")
    assert steps("ssp", staleness=0) == steps("bsp")
