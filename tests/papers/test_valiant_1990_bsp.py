"""Valiant, A Bridging Model for Parallel Computation, Communications of the ACM 33(8), 1990; SGD in supersteps."""

import numpy as np
import pytest

from paceline.core.scheme import make
from paceline.core.trace import Record, Span
from paceline.core.vector import Ghost
from paceline.schemes import bsp
from paceline.sim import LocalSteps, Simulation, plain_sgd
from tests.papers.sentences import says

DATA = np.random.default_rng(3).normal(size=(12, 6))


def test_n_workers_with_batch_b_equal_one_process_with_batch_n_b() -> None:
    """ "N workers with batch b equal one process with batch N b, and unequal batches equal one process with the
    union." """
    assert says(bsp, "so N workers with batch b equal one process with batch N b, and unequal")
    for cuts in ([4, 8], [1, 9]):
        batches = np.split(DATA, cuts)

        def gradient(rank: int, w: np.ndarray, batches: list[np.ndarray] = batches) -> np.ndarray:
            return w - batches[rank].mean(axis=0)

        def length(rank: int, batches: list[np.ndarray] = batches) -> int:
            return len(batches[rank])

        together = LocalSteps(lambda rank, rng: 1.0 + rank, gradient, samples=length)
        alone = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w - DATA.mean(axis=0), samples=lambda rank: 12)
        models = [
            Simulation(make("bsp", {}), np.zeros(6), work, workers=workers, update_factory=plain_sgd(0.3))
            .run(stop=lambda sim: sim.server(0).version == 20)
            .model()
            for workers, work in ((3, together), (1, alone))
        ]
        assert np.abs(models[0] - models[1]).max() < 1e-12


def test_the_pace_is_that_of_the_slowest_worker_every_round() -> None:
    """ "The pace is that of the slowest worker, every round." """
    assert says(bsp, "The pace is that of the slowest worker, every round.")
    spans: list[Record] = []
    work = LocalSteps(lambda rank, rng: rng.uniform(0.5, 2.0))
    sim = Simulation(make("bsp", {}), Ghost(4), work, workers=8, latency_s=0.0, trace=spans.append).run(until=100)
    by_rank = [
        [s.seconds for s in spans if isinstance(s, Span) and (s.rank, s.activity) == (r, "computing")] for r in range(8)
    ]
    rounds = min(map(len, by_rank))
    assert rounds > 40
    assert sum(map(max, zip(*(steps[:rounds] for steps in by_rank), strict=True))) == pytest.approx(sim.now, abs=2.1)
