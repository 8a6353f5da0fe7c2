"""Peers: what the workers hold together, over whole simulated runs. Local steps aside, nothing may change it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

from paceline.core.collective.mean_server import mean_model
from paceline.core.effects import Effect, Tell
from paceline.core.local.push_sum import Holder, Share
from paceline.sim import LocalSteps, Simulation, plain_sgd
from tests.conformance.schemes_table import CASES, DIMENSION, Case
from tests.conformance.test_sim import uneven, watch

CASES_OF_PEERS = [case for case in CASES if issubclass(case.make().worker(0), Holder)]
on_every_row_of_peers = pytest.mark.parametrize("case", CASES_OF_PEERS, ids=map(str, CASES_OF_PEERS))
WITH_MOMENTUM = {"noloco"}
"""Each worker's part of a pull between two goes on in its momentum. Who leaves takes its momentum along, so the mean is
kept only while all stay (tests/schemes/test_noloco.py)."""
on_every_row_without_momentum = pytest.mark.parametrize(
    "case",
    [case for case in CASES_OF_PEERS if case.scheme not in WITH_MOMENTUM],
    ids=lambda case: str(case),
)
WITHOUT_SHARES = {"adpsgd", "noloco", "prague"}
"""Mass travels only with who comes or goes."""
WORKERS = 5


def holder(sim: Simulation, rank: int) -> Holder:
    role = sim.worker(rank)
    assert isinstance(role, Holder)
    return role


def at_rest(case: Case, *, seed: int = 0) -> Simulation:
    """Workers whose steps change nothing, each with a model of its own: rank r has r everywhere."""
    w0 = np.zeros(DIMENSION)
    work = LocalSteps(uneven, lambda rank, w: w * 0.0)
    sim = Simulation(case.make(), w0, work, workers=WORKERS, servers=0, update_factory=plain_sgd(0.1), seed=seed)
    for rank in range(WORKERS):
        holder(sim, rank).w = w0 + rank
    return sim


def all_leave(sim: Simulation) -> None:
    """One after the other, until nothing is under way."""
    for rank in Random(sim.events).sample(range(WORKERS), WORKERS):
        sim.leave(rank)
        sim.run(until=sim.now + 0.7)
    sim.run()


def together(sim: Simulation) -> tuple[Any, float]:
    """The mean of all models, and the sum of their weights, wherever they are."""
    models = [holder(sim, rank).model() for rank in range(WORKERS)]
    return mean_model(models), sum(weight for _, weight in models)


@on_every_row_of_peers
def test_the_models_of_all_workers_become_one_and_that_is_their_mean(case: Case) -> None:
    sim = at_rest(case).run(until=300)
    models = np.array([holder(sim, rank).model()[0] for rank in range(WORKERS)])
    np.testing.assert_allclose(models, (WORKERS - 1) / 2, atol=0.3)
    assert np.ptp(models) < 0.1
    assert len({float(model[0]) for model in models}) > 1 or case.scheme != "gosgd"


@on_every_row_without_momentum
@pytest.mark.parametrize("seed", range(8))
def test_no_kill_and_no_leaving_changes_what_all_hold_together(case: Case, seed: int) -> None:
    sim = at_rest(case, seed=seed)
    before = together(sim)
    random = Random(seed)
    for _ in range(40):
        sim.run(max_events=sim.events + random.randrange(1, 30))
        sim.restart(random.randrange(WORKERS))
    assert max(sim.steps) > 0
    all_leave(sim)
    mean, weight = together(sim)
    assert weight == before[1]
    np.testing.assert_allclose(mean, before[0], rtol=1e-9)


@on_every_row_without_momentum
def test_one_that_comes_back_is_given_a_part_of_what_the_others_hold(case: Case) -> None:
    sim = at_rest(case).run(until=5)
    sim.leave(1)
    sim.run(until=15)
    assert holder(sim, 1).weight == 0
    held, weight = together(sim)
    sim.join(1)
    sim.run(until=40)
    assert holder(sim, 1).weight > 0
    all_leave(sim)
    assert together(sim)[1] == weight
    np.testing.assert_allclose(together(sim)[0], held, rtol=1e-9)


@on_every_row_of_peers
def test_at_every_moment_the_weights_of_all_workers_and_messages_sum_to_the_same(case: Case) -> None:
    sim = at_rest(case)
    under_way = [0.0]

    def see(rank: int, effect: Effect) -> None:
        if isinstance(effect, Tell) and isinstance(effect.message, Share):
            under_way[0] += effect.message.weight

    for rank in range(WORKERS):
        watch(sim, rank, see)
        role, party = holder(sim, rank), sim.world.workers[rank]

        def put(w: Any, weight: float, round: int, put: Any = role._put) -> None:
            under_way[0] -= weight
            put(w, weight, round)

        def on(now: float, src: int, message: Any, on: Any = party.on, rank: int = rank) -> Iterator[Any]:
            for effect in on(now, src, message):
                see(rank, effect)
                yield effect

        role._put, party.on = put, on  # type: ignore[method-assign]
    total = together(sim)[1]
    seen: set[bool] = set()

    def changed(sim: Simulation) -> bool:
        seen.add(under_way[0] > 0.01)
        return together(sim)[1] + under_way[0] != total

    sim.run(until=60, stop=changed)
    assert sim.now > 55, "the sum changed"
    assert seen == ({False} if case.scheme in WITHOUT_SHARES else {False, True})


def stalled(case: Case, stall_s: float) -> Simulation:
    """Worker 1's third step takes `stall_s`, all others about one second. Each rank's own optimum is its number."""
    steps = [0] * WORKERS

    def seconds(rank: int, rng: Random) -> float:
        steps[rank] += 1
        return stall_s if rank == 1 and steps[rank] == 3 else rng.uniform(0.9, 1.1)

    work, update = LocalSteps(seconds, lambda rank, w: w - rank), plain_sgd(0.1)
    return Simulation(case.make(), np.zeros(1), work, workers=WORKERS, servers=0, update_factory=update, watched=False)


STALLS = [
    (Case(scheme="gosgd", parameters={"p": 1.0}), 25_000.0),
    (Case(scheme="gosgd"), 2_000.0),
    (Case(scheme="sgp"), 2_000.0),
    (Case(scheme="sgp", parameters={"tau": 3, "topology": "complete"}), 2_000.0),
    (Case(scheme="adpsgd"), 2_000.0),
]


@pytest.mark.parametrize(("case", "stall_s"), STALLS, ids=[f"{case}" for case, _ in STALLS])
def test_what_lies_at_a_worker_that_stalls_is_bounded_and_nothing_is_lost(case: Case, stall_s: float) -> None:
    sim = stalled(case, stall_s)
    total = together(sim)[1]
    sim.run(until=6)
    before = holder(sim, 1).model()[1]
    sim.run(until=stall_s)
    role = holder(sim, 1)
    most = {"gosgd": total / 2 / 2, "sgp": 3 * total / WORKERS, "adpsgd": 0.0}[case.scheme]
    assert role.model()[1] <= before + most
    weights = [holder(sim, rank).model()[1] for rank in range(WORKERS)]
    assert sum(weights) == total
    assert min(weights) > 1e-6 * total
    if case.scheme != "sgp":  # whose workers wait for one another
        assert min(sim.steps[:1] + sim.steps[2:]) > 0.9 * stall_s
    assert all(np.isfinite(holder(sim, rank).model()[0]).all() for rank in range(WORKERS))
    sim.run(until=stall_s + 300)
    assert sim.model() == pytest.approx((WORKERS - 1) / 2, abs=1.0)
    all_leave(sim)
    assert together(sim)[1] == total
