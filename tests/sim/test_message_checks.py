"""Messages of a liar are brought within their bounds, or it is expelled."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from math import nan
from typing import Any

import numpy as np
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.local.push_sum import Share
from paceline.core.paramserver.clocks import Clocks
from paceline.core.scheme import make
from paceline.core.validation.bounds import COUNT_MAX, PlanLimits
from paceline.core.validation.message_checker import STRIKES, Checker
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps
from paceline.sim.checking.invariants import InvariantBroken
from paceline.sim.cluster.model import Fault, uniform
from paceline.sim.faults.lying_worker import Lies
from paceline.sim.fuzzing.fuzz import LENGTH, draw, go_on_to_the_end, simulation
from paceline.sim.fuzzing.random_parameters import schemes_of
from paceline.sim.simulation import Simulation
from tests.sim.fuzzing.liars import NOTED, play


def test_a_round_that_is_brought_to_its_bounds_may_be_told_on() -> None:
    """An honest worker that returned a share with the round that a liar had given it had the strike."""
    sim = play(6699)
    assert set(sim.members.banned) <= sim.liars
    checker = Checker(PlanLimits(workers=3))
    for round in (COUNT_MAX, 2**60):
        share = Share(w=Ghost(LENGTH), weight=0.5, round=round)
        if checker.check(0, share) is not None:
            share = checker.nearest(0, share)
        assert share.round <= COUNT_MAX


def test_a_clock_of_2_to_the_60_makes_nobody_count_to_it() -> None:
    clocks = Clocks([0, 1])
    clocks.tick(0, 2**60)
    clocks.tick(1, 2**60 + 5)
    assert clocks.low == 2**60


STEPS = LocalSteps(lambda rank, rng: 1.0)


def honest(seed: int) -> Simulation:
    sim = simulation(draw(seed, schemes_of(seed, NOTED)))
    assert sim.lies is None
    return sim


def test_messages_of_honest_workers_are_checked_where_invariants_watch_hazards() -> None:
    sim = honest(5)
    go_on_to_the_end(sim)
    assert sim.message_checks is not None
    assert not sim.message_checks.strikes
    assert Simulation(sim.scheme, Ghost(12), STEPS, cluster=sim.cluster, watched=False).message_checks is None


def test_a_strike_of_an_honest_worker_breaks_an_invariant() -> None:
    sim = honest(5)
    assert sim.message_checks is not None
    sender, receiver = sim.world.workers[:2]
    with pytest.raises(InvariantBroken, match="has a strike, and has not lied: Share: weight is nan"):
        sim.message_checks.admitted(receiver, sender, Share(w=Ghost(LENGTH), weight=nan, round=1))


def test_a_nan_of_a_liar_that_is_let_through_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = play(6699)
    assert sim.message_checks is not None
    monkeypatch.setattr(Checker, "check", lambda *args, **kwargs: None)
    liar = sim.world.workers[min(sim.liars)]
    share = Share(w=Ghost(LENGTH), weight=nan, round=1)
    with pytest.raises(InvariantBroken, match="takes Share.weight = nan of"):
        sim.message_checks.admitted(sim.world.workers[min(set(range(3)) - sim.liars)], liar, share)
    assert sim.message_checks.admitted(sim.world.workers[0], liar, Share(w=Ghost(LENGTH), weight=0.5, round=1))


def test_an_honest_server_has_no_strike_either() -> None:
    sim = honest(5)
    assert sim.message_checks is not None
    with pytest.raises(InvariantBroken, match="server 0 has a strike, and has not lied: Share: weight is nan"):
        sim.message_checks.admitted(
            sim.world.workers[0], sim.world.servers[0], Share(w=Ghost(LENGTH), weight=nan, round=1)
        )


def test_a_worker_that_has_another_one_expelled_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = play(6699)
    assert sim.message_checks is not None
    liar = sim.world.workers[min(sim.liars)]
    other = sim.world.workers[min(set(range(3)) - sim.liars)]
    monkeypatch.setattr(sim.message_checks._of(other).admission, "_may_expel", True)
    with pytest.raises(InvariantBroken, match=f"{other.name} has {liar.name} expelled: "):
        for _ in range(STRIKES):
            sim.message_checks.admitted(other, liar, Share(w=Ghost(LENGTH), weight=nan, round=1))


# ---- vectors of a wrong length -------------------------------------------------------------------------------
WRONG_LENGTHS = [
    *(("localsgd", 2, "Part.v"), ("diloco", 2, "Part.v"), ("esync", 1, "Part.v"), ("tiers", 2, "Push.g")),
    *(("noloco", 0, "PairPart.phi"), ("noloco", 0, "PairPart.theta"), ("prague", 0, "ReducePart.x")),
    *(("adpsgd", 0, "Average.x"), ("adpsgd", 0, "Moved.d"), ("gosgd", 0, "Share.w"), ("sgp", 0, "Share.w")),
    *(("decoupled", 1, "LearnerFragment.delta"), ("bsp", 2, "Push.g"), ("eamsgd", 1, "Replica.x")),
    ("halos", 1, "LocalDelta.delta"),
]
N = 12


def changed(v: Any, by: int) -> Any:
    return v[:by] if by < 0 else np.concatenate([v, np.zeros(by, v.dtype)])


@pytest.mark.parametrize("by", [-1, 3])
@pytest.mark.parametrize(("scheme", "servers", "field"), WRONG_LENGTHS)
def test_a_vector_of_a_wrong_length_costs_nobody_but_its_sender(
    monkeypatch: pytest.MonkeyPatch, scheme: str, servers: int, field: str, by: int
) -> None:
    """The receiver used to fail, and its run with it: at once, or where its loop used what it had kept."""
    kind, _, name = field.partition(".")
    liar, told = 1 if kind == "Moved" else 2, 0  # in adpsgd the odd ranks are asked

    def parts(self: Lies, now: float, rank: int, parts: Sequence[Any]) -> Sequence[Any]:
        nonlocal told
        if rank != liar or type(parts[0]).__name__ != kind or not all(len(getattr(part, name)) for part in parts):
            return parts
        self.ever.add(rank)
        told += 1
        return [dataclasses.replace(part, **{name: changed(getattr(part, name), by)}) for part in parts]

    monkeypatch.setattr(Lies, "parts", parts)
    cluster = replace(uniform(4, servers), faults=(Fault(kind="lie", at_s=1e6, workers=(liar,)),))
    parameters = {"groups": "0,1,2;3"} if scheme in ("tiers", "halos") else {"p": 1.0} if scheme == "gosgd" else {}
    work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w - 1.0, samples=lambda rank: 4)
    sim = Simulation(make(scheme, parameters), np.zeros(N), work, cluster=cluster, seed=3, batch_samples=4)
    sim.run(until=200.0)
    assert told
    assert sim.message_checks is not None
    assert {str(who) for who in sim.message_checks.strikes} == {f"worker {liar}"}
    assert sim.members.banned <= {liar}
    assert min(steps for rank, steps in enumerate(sim.steps) if rank != liar) > 60
    assert len(sim.model()) == N
