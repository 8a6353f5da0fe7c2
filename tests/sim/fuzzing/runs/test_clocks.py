"""Runs whose clocks differ, drift and jump: nobody is lost for that, and a run ends when its clock says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.fault_tolerance.membership import Membership
from paceline.core.scheme import names
from paceline.sim.faults.coordination.heartbeats import SimulatedHeartbeats
from paceline.sim.fuzzing.fuzz import CALM_S, FuzzPlan, clocks_of, draw, play, simulation
from paceline.sim.fuzzing.random_parameters import schemes_of
from paceline.sim.fuzzing.runs import clocks

SEEDS = 160


def plan_of(seed: int) -> FuzzPlan:
    return replace(draw(seed, schemes_of(seed, names())), runs=("clock",))


@pytest.mark.parametrize("part", range(4))
def test_nobody_is_lost_because_a_clock_jumps(part: int) -> None:
    for seed in range(part, SEEDS, 4):
        play(plan_of(seed))


def test_seeds_draw_clocks_that_drift_either_way_and_jump_a_little_and_far() -> None:
    wishes = [wish for seed in range(4 * SEEDS) if (wish := clocks_of(plan_of(seed)))]
    jumps = [by for wish in wishes for _, by in wish.clock.jumps]
    assert {wish.clock.rate for wish in wishes} == set(clocks.DRIFTS)
    assert min(jumps) < 1.0
    assert max(jumps) > 1000.0
    assert {bool(wish.rule.seconds) for wish in wishes} == {True, False}


def test_clocks_of_workers_and_servers_drift_apart() -> None:
    plan = plan_of(0)
    sim = simulation(replace(plan, cluster=replace(plan.cluster, faults=())))
    before = [party.skew_s for party in sim.world.workers]
    clocks.drift(sim, CALM_S)
    sim.run(until=10.0)
    gained = {round(party.skew_s - skew, 9) for party, skew in zip(sim.world.workers, before, strict=True)}
    assert len(gained) > 1


def test_a_coordinator_that_takes_a_jump_for_a_silence_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    tick = Membership.tick

    def without_looking_for_a_gap(self: Membership[object], now: float) -> object:
        self._ticked = now
        return tick(self, now)

    monkeypatch.setattr(Membership, "tick", without_looking_for_a_gap)
    with pytest.raises(AssertionError, match=r"is lost \(silent for"):
        for seed in range(SEEDS):
            play(plan_of(seed))


def test_a_timer_that_does_not_follow_the_clock_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_virtual_time(self: SimulatedHeartbeats, seconds: float, timer: object, number: int) -> None:
        self._watching = True
        self._sim.heap.push(self._sim.now + seconds, self._rings, timer, number)

    monkeypatch.setattr(SimulatedHeartbeats, "start", by_virtual_time)
    with pytest.raises(AssertionError, match="seconds was due before|the run ends by seconds"):
        for seed in range(SEEDS):
            play(plan_of(seed))
