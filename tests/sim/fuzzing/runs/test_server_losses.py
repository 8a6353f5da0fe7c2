"""Runs that lose servers while others are being replaced, and what only they see."""

from __future__ import annotations

from dataclasses import replace

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.fault_tolerance.replication import Copies
from paceline.core.fault_tolerance.server_recovery import Replacing
from paceline.core.scheme import names
from paceline.sim.fuzzing.fuzz import CALM_S, FuzzPlan, draw, go_on_to_the_end, play, simulation, with_server_losses
from paceline.sim.fuzzing.random_parameters import schemes_of
from paceline.sim.fuzzing.runs import server_losses

SEEDS = 240


def plan_of(seed: int) -> FuzzPlan:
    return replace(draw(seed, schemes_of(seed, names())), runs=("servers",))


@pytest.mark.parametrize("part", range(4))
def test_nothing_acknowledged_is_lost_with_servers_that_are_lost_together(part: int) -> None:
    for seed in range(part, SEEDS, 4):
        play(plan_of(seed))


def test_servers_are_lost_one_after_the_other_and_some_runs_go_back_to_a_snapshot() -> None:
    runs = lost = rolled_back = 0
    for seed in range(SEEDS):
        if not (plan := with_server_losses(plan_of(seed))):
            continue
        sim = simulation(plan)
        go_on_to_the_end(sim, server_losses.losing(sim, CALM_S))
        assert plan.cluster.servers >= 3
        assert sim.streams is not None
        runs += 1
        lost += sim.streams.injected["server lost"]
        rolled_back += sim.members.machine.recovery.server_view > 0
    assert runs > 15
    assert lost > 2 * runs
    assert 0 < rolled_back < runs


def found(message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        for seed in range(2 * SEEDS):
            play(plan_of(seed))


def test_servers_that_go_back_without_need_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets_who_was_away(self: Replacing) -> None:
        self.away.clear()

    monkeypatch.setattr(Replacing, "done", forgets_who_was_away)
    found("all servers went back to the snapshot, though the copy of")


def test_an_answer_that_was_held_for_one_who_has_gone_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Copies, "on_worker_left", lambda self, now, rank: iter(()))
    found("sends an answer that it held for a worker that has gone")
