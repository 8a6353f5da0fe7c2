"""Dutta et al., Slow and Stale Gradients Can Win the Race, AISTATS 2018; Chen et al., Revisiting Distributed
Synchronous SGD, arXiv 1604.00981."""

import numpy as np
import pytest

from paceline.core.scheme import make
from paceline.core.trace import Applied, Record
from paceline.core.vector import Ghost
from paceline.schemes import ksync
from paceline.sim import LocalSteps, Simulation
from tests.papers.sentences import says

N = 8


def updates(seconds: float = 4000, **parameters: object) -> list[Applied]:
    """Those of N workers whose steps take exponential time with a mean of 1 s."""
    records: list[Record] = []
    work = LocalSteps(lambda rank, rng: rng.expovariate(1.0))
    scheme = make("ksync", dict(parameters))
    Simulation(scheme, Ghost(8), work, workers=N, trace=records.append, seed=1).run(until=seconds)
    return [record for record in records if isinstance(record, Applied)]


def test_the_slowest_b_workers_gradients_are_dropped_when_they_arrive() -> None:
    """Chen et al., Section 3.2: "the slowest b workers' gradients will be dropped when they arrive"."""
    assert says(ksync, "the slowest b workers' gradients will be dropped when they arrive")
    of = updates(k=N - 2)
    made = [u for u in of if u.weight]
    assert {len(u.ranks) for u in made} == {N - 2}
    assert {u.staleness for u in made} == {0}
    dropped = [u for u in of if not u.weight]
    assert min(u.staleness for u in dropped) >= 1
    assert len(dropped) <= 2 * len(made)


@pytest.mark.parametrize("k", [1, 2, 4, 6])
def test_the_expected_runtime_of_an_iteration_of_k_batch_async(k: int) -> None:
    """Dutta et al., Section 3: it is K mu / P for K-batch-async: nobody is ever idle, and each of P learners gives a
    mini-batch every mu seconds."""
    of = updates(k=k, late="fold", variant="batch")
    seconds_per_update = (of[-1].at - of[0].at) / (len(of) - 1)
    assert seconds_per_update == pytest.approx(k / N, rel=0.05)


def test_the_asynchronous_variants_take_less_time_for_an_update() -> None:
    """Dutta et al., Section 3. The order of K-sync and K-batch-sync is not theirs here: "Where nobody is interrupted,
    K-batch-sync is no faster than K-sync"."""
    assert says(ksync, "Where nobody is interrupted, K-batch-sync is no faster than K-sync")

    def rate(**parameters: object) -> int:
        return sum(u.weight > 0 for u in updates(seconds=1000, k=4, **parameters))

    k_sync, k_batch_sync = rate(), rate(variant="batch")
    k_async, k_batch_async = rate(late="fold"), rate(late="fold", variant="batch")
    assert k_sync < k_async < k_batch_async
    assert k_batch_sync < k_batch_async
    assert k_batch_sync < 1.1 * k_sync


def test_late_fold_trades_time_for_staleness() -> None:
    assert max(u.staleness for u in updates(seconds=500, k=4) if u.weight) == 0
    stale = [u.staleness for u in updates(seconds=500, k=4, late="fold")]
    assert np.mean(stale) > 0.5
