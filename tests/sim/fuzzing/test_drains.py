"""Runs whose workers are drained, and what only they see."""

from __future__ import annotations

from dataclasses import replace

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.coordination.elasticity import Elasticity
from paceline.core.coordination.party import Party
from paceline.core.fault_tolerance.membership import LetExit, Membership, MembershipDecision
from paceline.core.parties.delivery_confirmation import AllTaken, DeliveryConfirmation
from paceline.core.scheme import make, names
from paceline.sim.cluster.model import Cluster, Fault, Hazards, uniform
from paceline.sim.fuzzing import drains
from paceline.sim.fuzzing.fuzz import CALM_S, FuzzPlan, draw, play
from paceline.sim.fuzzing.random_parameters import schemes_of

SEEDS = 240
CLUSTER = replace(uniform(4, 2), hazards=Hazards(late=0.02, late_s=0.01))
LOSS = Fault(kind="crash", at_s=0.0, for_s=1.0, hosts=("servers-0",))


def drawn(scheme: str, *, ends: bool = False) -> list[Cluster]:
    box = make(scheme, {})
    found = [drains.draw(seed, box, CLUSTER, CALM_S, lambda _: LOSS, ends=ends) for seed in range(SEEDS)]
    return [cluster for cluster in found if cluster]


def drained(cluster: Cluster) -> list[int]:
    return [rank for fault in cluster.faults if fault.kind == "drain" for rank in fault.workers]


def test_a_worker_stays_and_each_is_drained_once_and_servers_end_just_then_where_they_can_be_replaced() -> None:
    clusters = drawn("ssp")
    assert SEEDS // 5 < len(clusters) < SEEDS // 2
    assert {len(drained(cluster)) for cluster in clusters} == {1, 2, 3}
    assert all(len(set(drained(cluster))) == len(drained(cluster)) for cluster in clusters)
    assert any(fault.kind == "crash" for cluster in clusters for fault in cluster.faults)
    assert all(cluster.hazards == CLUSTER.hazards for cluster in clusters)
    assert all(0.0 <= fault.at_s <= CALM_S for cluster in clusters for fault in cluster.faults)


def test_where_something_ends_the_run_all_may_be_drained_at_nearly_the_same_time() -> None:
    all_of_them = [cluster for cluster in drawn("ssp", ends=True) if len(drained(cluster)) == 4]
    assert len(all_of_them) > 10
    for cluster in all_of_them:
        times = [fault.at_s for fault in cluster.faults]
        assert max(times) - min(times) <= max(drains.ALL_WITHIN_S)


def test_where_workers_have_models_of_their_own_each_seed_drains_and_messages_are_late() -> None:
    clusters = drawn("gosgd")
    assert len(clusters) == SEEDS
    assert {cluster.hazards.late for cluster in clusters if cluster.hazards} == set(drains.LATE)
    assert {cluster.hazards.late_s for cluster in clusters if cluster.hazards} == set(drains.LATE_S)


def plan_of(seed: int) -> FuzzPlan:
    return replace(draw(seed, schemes_of(seed, names())), runs=("drain",))


@pytest.mark.parametrize("part", range(4))
def test_nothing_is_lost_with_those_who_are_drained(part: int) -> None:
    for seed in range(part, SEEDS, 4):
        play(plan_of(seed))


def found(message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        for seed in range(2 * SEEDS):
            play(plan_of(seed))


def test_one_that_exits_before_the_others_have_heard_that_it_has_left_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    left = Membership.left

    def at_once(
        self: Membership[Party], now: float, who: Party, *, drained: bool = False
    ) -> list[MembershipDecision[Party]]:
        decisions = left(self, now, who, drained=drained)
        return [*decisions, *([LetExit(who)] if drained and not decisions else [])]

    monkeypatch.setattr(Membership, "left", at_once)
    found("may exit, and .* has not heard yet that it has left")


def test_one_that_asks_nobody_before_its_process_ends_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = DeliveryConfirmation.begin

    def once(self: DeliveryConfirmation, connected: set[Party]) -> object:
        if hasattr(self, "begun"):
            return AllTaken()
        self.begun = True  # type: ignore[attr-defined]
        return begin(self, connected)

    monkeypatch.setattr(DeliveryConfirmation, "begin", once)
    found("ends, and has heard nothing of .* since that one knew|ends; of .* messages of")


def test_the_last_one_that_is_let_go_though_nobody_stays_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    let_exit = Elasticity._let_exit

    def whoever_stays(self: Elasticity, who: Party) -> None:
        least, self._min_workers = self._min_workers, 0
        let_exit(self, who)
        self._min_workers = least

    monkeypatch.setattr(Elasticity, "_let_exit", whoever_stays)
    found("may exit, and nobody else trains")
