from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.effects import Reply
from paceline.core.local.answered_rounds import RoundSent
from paceline.core.local.push_sum import Share
from paceline.core.local.topology import sends_to
from paceline.core.role import RoleContext
from paceline.core.scheme import make
from paceline.core.trace import Record, Span
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps, Simulation, plain_sgd
from paceline.sim.cluster.model import Fault, uniform
from paceline.sim.faults.lying_worker import Lies

LR = 0.1


def pull(rank: int, w: Any) -> Any:
    """Every worker has an optimum of its own."""
    return w - rank


def mixing(topology: str, k: int, n: int) -> Any:
    """P of round k: column j says how worker j splits what it has."""
    p = np.eye(n)
    for j in range(n):
        for i in sends_to(topology, j, k, n):
            p[i, j] = 1
    return p / p.sum(axis=0)


def by_matrices(topology: str, rounds: int, n: int) -> Any:
    """The paper's Algorithm 1 with all workers at once: x <- P (x - gamma grad F(z)), w <- P w, z <- x / w."""
    x, w = np.zeros(n), np.ones(n)
    for k in range(rounds):
        x = x - LR * (x / w - np.arange(n))
        x, w = mixing(topology, k, n) @ x, mixing(topology, k, n) @ w
    return x / w


@pytest.mark.parametrize("topology", ["exponential", "ring", "complete", "random"])
@pytest.mark.parametrize("n", [2, 5, 8])
def test_without_overlap_it_is_the_algorithm_of_the_paper_whatever_the_speeds(topology: str, n: int) -> None:
    rounds, work = 12, LocalSteps(lambda rank, rng: rng.uniform(0.5, 3.0), pull)
    scheme = make("sgp", {"topology": topology})
    sim = Simulation(scheme, np.zeros(2), work, workers=n, servers=0, update_factory=plain_sgd(LR))
    final: dict[int, Any] = {}

    def all_have(sim: Simulation) -> bool:
        for rank in range(n):
            role: Any = sim.worker(rank)
            if role.k == rounds and sim.steps[rank] == rounds and rank not in final and not waits(sim, rank):
                final[rank] = role.w.copy()
        return len(final) == n

    def waits(sim: Simulation, rank: int) -> bool:
        return bool(sim.incarnations[rank].awaited)

    sim.run(until=200, stop=all_have)
    expected = by_matrices(topology, rounds, n)
    np.testing.assert_allclose([final[rank][0] for rank in range(n)], expected, rtol=1e-9)


def test_without_overlap_nobody_is_further_ahead_than_the_graph_lets_it() -> None:
    work = LocalSteps(lambda rank, rng: 10.0 if rank == 3 else 1.0)
    sim = Simulation(make("sgp", {}), Ghost(4), work, workers=8, servers=0)
    ahead = []
    sim.run(until=500, stop=lambda sim: ahead.append(max(sim.steps) - min(sim.steps)))  # type: ignore[func-returns-value]
    assert max(ahead) <= 3  # hops of the graph
    assert min(sim.steps) > 40


def test_with_overlap_a_share_may_take_as_long_as_tau_steps_and_nobody_waits_for_it() -> None:
    """A network that takes 0.3 s for a model, steps of 1 s."""
    model, gbps = 1000, 4000 * 8e-9 / 0.3

    def waited(tau: int) -> float:
        records: list[Record] = []
        work = LocalSteps(lambda rank, rng: 1.0)
        scheme = make("sgp", {"tau": tau})
        Simulation(scheme, Ghost(model), work, workers=4, servers=0, bandwidth_gbps=gbps, trace=records.append).run(
            until=50
        )
        return sum(r.seconds for r in records if isinstance(r, Span) and r.activity != "computing") / 4

    assert waited(0) > 10
    assert waited(1) < 1


def test_after_a_worker_has_left_the_others_go_on_and_agree() -> None:
    sim = Simulation(
        make("sgp", {}), np.zeros(2), LocalSteps(lambda rank, rng: 1.0, pull), workers=4, servers=0,
        update_factory=plain_sgd(0.01),
    )  # fmt: skip
    sim.run(until=10.5)
    sim.leave(2)
    sim.run(until=2000)
    assert sim.steps[2] < 15
    assert min(sim.steps[rank] for rank in (0, 1, 3)) > 1900
    assert sim.model()[0] == pytest.approx((0 + 1 + 3) / 3, rel=0.15), "the optimum of those who are left"


@pytest.mark.parametrize("tau", [0, 2])
@pytest.mark.parametrize("losses", [0, 3, 20])
def test_lost_workers_do_not_lengthen_the_steps_of_those_who_stay(tau: int, losses: int) -> None:
    """A step of 0.3 on a quadratic oscillates when it is four times as long, and diverges beyond."""
    work = LocalSteps(lambda rank, rng: rng.uniform(0.9, 1.1), lambda rank, w: w - 1.0)
    sim = Simulation(
        make("sgp", {"tau": tau}), np.zeros(2), work, workers=3, servers=0, update_factory=plain_sgd(0.3)
    )  # fmt: skip
    sim.run(until=10.0)
    for turn in range(losses):
        sim.crash(turn % 3)
        sim.run(until=sim.now + 2.0)
        sim.join(turn % 3)
        sim.run(until=sim.now + 6.0)
    before = [np.abs(sim.worker(rank).w - 1.0).max() for rank in range(3)]
    sim.worker(0).w = sim.worker(0).w + 1.0  # a disturbance, which steps of that length take back
    sim.run(until=sim.now + 40.0)
    assert max(before) < 0.1
    assert max(np.abs(sim.worker(rank).w - 1.0).max() for rank in range(3)) < 0.01


def test_a_share_of_a_round_that_nobody_can_be_in_is_absorbed_all_the_same() -> None:
    """Its mass used to wait for that round, and a place in the inbox with it: 65,536 vectors of one sender."""
    place = RoleContext(me=0, workers=(0, 1, 2, 3), w=np.zeros(2), update=lambda w, g, samples: w)
    role = make("sgp", {}).worker(0)(make("sgp", {}), place)
    for round in range(50_000, 50_300):
        list(role.on(0.0, 1, Share(w=np.ones(2), weight=1 / 512, round=round)))
    assert len(role.inbox) == 1
    role.k = role.latest()
    role.absorb(role.k)
    assert role.weight == 1 + 300 / 512


def test_a_question_about_a_round_that_nobody_can_be_in_is_answered_at_once() -> None:
    """Who asks it waits for the answer, and the others for who asks."""
    struck: list[int] = []
    place = RoleContext(
        me=0,
        workers=(0, 1, 2, 3),
        w=np.zeros(2),
        update=lambda w, g, samples: w,
        refuses=lambda rank, why: struck.append(rank),
    )
    role = make("sgp", {}).worker(0)(make("sgp", {}), place)
    assert list(role.on(0.0, 1, RoundSent(round=role.latest()))) == []
    assert list(role.on(0.0, 2, RoundSent(round=50_000))) == [Reply(2, RoundSent(round=0))]
    assert struck == [2]


def test_others_may_be_in_the_round_of_a_resumed_run_before_this_worker_has_loaded_it() -> None:
    struck: list[int] = []
    place = RoleContext(
        me=0,
        workers=(0, 1),
        w=np.zeros(2),
        update=lambda w, g, samples: w,
        refuses=lambda rank, why: struck.append(rank),
    )
    role = make("sgp", {}).worker(0)(make("sgp", {}), place)
    role.go_on_at(47)
    assert list(role.on(0.0, 1, RoundSent(round=47))) == []
    assert struck == []


def test_a_round_50000_ahead_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def parts(self: Lies, now: float, rank: int, parts: Sequence[Any]) -> Sequence[Any]:
        if rank != 2 or not isinstance(parts[0], Share):
            return parts
        self.ever.add(rank)
        return [replace(parts[0], round=parts[0].round + 50_000)]

    monkeypatch.setattr(Lies, "parts", parts)
    cluster = replace(uniform(4, 0), faults=(Fault(kind="lie", at_s=1e6, workers=(2,)),))
    work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w - 1.0, samples=lambda rank: 4)
    sim = Simulation(make("sgp", {}), np.zeros(3), work, cluster=cluster, seed=3, update_factory=plain_sgd(LR))
    sim.run(until=300.0)
    assert min(sim.steps) > 250
    assert sim.model() == pytest.approx(np.ones(3), abs=1e-3)
    for party in sim.world.workers:
        assert len(party.role.inbox) < 40  # type: ignore[attr-defined]
