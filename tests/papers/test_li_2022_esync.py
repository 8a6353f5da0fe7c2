"""Li et al., ESync: Accelerating Intra-Domain Federated Learning in Heterogeneous Data Centers, IEEE TSC 15(4)."""

from collections import Counter
from random import Random

import numpy as np
import pytest

from paceline.core.effects import Train, Trained
from paceline.core.scheme import make
from paceline.core.trace import Record, Span
from paceline.core.vector import Ghost
from paceline.schemes import esync
from paceline.sim import LocalSteps, Simulation
from tests.papers.sentences import says

C = (3.5, 3.3, 0.03, 0.1, 1.0)
"""Seconds a step on the preprint's cluster: slowest 3.5 s, fastest 0.03 s."""


class Counted(LocalSteps):
    sim: Simulation
    n: Counter[tuple[int, int]]

    def train(self, rank: int, wanted: Train, rng: Random) -> Trained:
        self.n[self.sim.worker(rank).round, rank] += wanted.steps
        return super().train(rank, wanted, rng)


@pytest.fixture(scope="module")
def preprint() -> tuple[Counted, list[Record]]:
    records: list[Record] = []
    work = Counted(lambda rank, rng: C[rank])
    work.n = Counter()
    work.sim = Simulation(
        make("esync", {"delayed_ack": False, "overrun": 0.0}),
        Ghost(10),
        work,
        workers=5,
        servers=0,
        latency_s=1e-7,
        trace=records.append,
    )
    work.sim.run(until=110)
    return work, records


def test_the_slowest_makes_one_step_a_round_and_a_fast_one_as_many_as_fit(preprint: tuple) -> None:
    """ "So the slowest worker makes exactly one step a round and a fast one as many as fit." """
    assert says(esync, "So the slowest worker makes exactly one step a round and a fast one as many as fit.")
    work, _ = preprint
    for round in range(1, 28):
        n = [work.n[round, rank] for rank in range(5)]
        assert n in ([1, 1, 116, 34, 3], [1, 1, 116, 35, 3]), (
            "35 steps of 0.1 s fit, but for the way to the coordinator"
        )


def test_the_blocking_time_is_less_than_a_step_of_the_fastest(preprint: tuple) -> None:
    """The preprint claims that the blocking time is "less than c_p (0.03 s)". The original did not keep it, for its
    epsilon of 0.5 s; and it can hold only for the worker whose step c_p is."""
    _, records = preprint
    waits = [r.seconds for r in records if isinstance(r, Span) and (r.rank, r.activity) == (2, "waiting") and r.at > 10]
    assert len(waits) > 1000
    assert max(waits) < 0.03


def test_differences_are_weighted_by_their_samples() -> None:
    """ "In the journal version differences are weighted by the n_i samples that went into them, and m counts"; there,
    Delta = sum(n_k / n Delta_k)."""
    assert says(esync, "In the journal version differences are weighted by the n_i samples that went into them")
    work = Counted(lambda rank, rng: (4.0, 1.0)[rank], lambda rank, w: -np.eye(2)[rank], lr=1.0)
    work.n = Counter()
    work.sim = Simulation(make("esync", {}), np.zeros(2), work, workers=2, servers=1)
    work.sim.run(stop=lambda sim: min(sim.worker(rank).round for rank in (0, 1)) == 1)
    n = np.array([work.n[0, 0], work.n[0, 1]])
    assert n[1] > n[0]
    assert work.sim.model() == pytest.approx(n * n / n.sum())


def test_on_equal_machines_it_is_bsp() -> None:
    """ "On equal machines it is local SGD with one step: BSP." """
    assert says(esync, "On equal machines it is local SGD with one step: BSP.")
    work = Counted(lambda rank, rng: 1.0)
    work.n = Counter()
    work.sim = Simulation(make("esync", {}), Ghost(2), work, workers=4, servers=1)
    work.sim.run(until=50)
    assert {work.n[round, rank] for round in range(1, 40) for rank in range(4)} == {1}


def test_in_the_preprint_all_differences_weigh_the_same() -> None:
    """ "in the preprint all workers weigh the same and m = 0"; there, Delta = 1/p sum(Delta_i)."""
    assert says(esync, "in the preprint all workers weigh the same and m = 0")
    work = Counted(lambda rank, rng: (4.0, 1.0)[rank], lambda rank, w: -np.eye(2)[rank], lr=1.0)
    work.n = Counter()
    work.sim = Simulation(make("esync", {"variant": "preprint"}), np.zeros(2), work, workers=2, servers=1)
    work.sim.run(stop=lambda sim: min(sim.worker(rank).round for rank in (0, 1)) == 1)
    assert work.n[0, 1] > work.n[0, 0]
    assert work.sim.model() == pytest.approx([work.n[0, 0] / 2, work.n[0, 1] / 2])
