"""Messages of a liar are brought within their bounds, or it is expelled."""

from __future__ import annotations

from math import nan

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.local.push_sum import Share
from paceline.core.paramserver.clocks import Clocks
from paceline.core.validation.bounds import COUNT_MAX, PlanLimits
from paceline.core.validation.message_checker import STRIKES, Checker
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps
from paceline.sim.checking.invariants import InvariantBroken
from paceline.sim.fuzzing.fuzz import draw, go_on_to_the_end, simulation
from paceline.sim.fuzzing.random_parameters import schemes_of
from paceline.sim.simulation import Simulation
from tests.sim.fuzzing.liars import NOTED, play


def test_a_round_that_is_brought_to_its_bounds_may_be_told_on() -> None:
    """An honest worker that returned a share with the round that a liar had given it had the strike."""
    sim = play(6699)
    assert set(sim.members.banned) <= sim.liars
    checker = Checker(PlanLimits(workers=3))
    for round in (COUNT_MAX, 2**60):
        share = Share(w=Ghost(1), weight=0.5, round=round)
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
        sim.message_checks.admitted(receiver, sender, Share(w=Ghost(1), weight=nan, round=1))


def test_a_nan_of_a_liar_that_is_let_through_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = play(6699)
    assert sim.message_checks is not None
    monkeypatch.setattr(Checker, "check", lambda *args, **kwargs: None)
    liar = sim.world.workers[min(sim.liars)]
    share = Share(w=Ghost(1), weight=nan, round=1)
    with pytest.raises(InvariantBroken, match="takes Share.weight = nan of"):
        sim.message_checks.admitted(sim.world.workers[min(set(range(3)) - sim.liars)], liar, share)
    assert sim.message_checks.admitted(sim.world.workers[0], liar, Share(w=Ghost(1), weight=0.5, round=1))


def test_an_honest_server_has_no_strike_either() -> None:
    sim = honest(5)
    assert sim.message_checks is not None
    with pytest.raises(InvariantBroken, match="server 0 has a strike, and has not lied: Share: weight is nan"):
        sim.message_checks.admitted(sim.world.workers[0], sim.world.servers[0], Share(w=Ghost(1), weight=nan, round=1))


def test_a_worker_that_has_another_one_expelled_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = play(6699)
    assert sim.message_checks is not None
    liar = sim.world.workers[min(sim.liars)]
    other = sim.world.workers[min(set(range(3)) - sim.liars)]
    monkeypatch.setattr(sim.message_checks._of(other).admission, "_may_expel", True)
    with pytest.raises(InvariantBroken, match=f"{other.name} has {liar.name} expelled: "):
        for _ in range(STRIKES):
            sim.message_checks.admitted(other, liar, Share(w=Ghost(1), weight=nan, round=1))
