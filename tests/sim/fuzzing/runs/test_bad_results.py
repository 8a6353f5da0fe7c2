"""Runs with workers whose results are NaN: what is drawn, and what only these runs see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.coordinator.machine import CoordinatorMachine
from paceline.core.paramserver.gated_server import ClockedServer
from paceline.core.paramserver.gradient_check import SliceGradientCheck, Strikes
from paceline.core.samples.sample_leases import Leases
from paceline.core.scheme import make, names
from paceline.sim.cluster.model import Cluster, Hazards, uniform
from paceline.sim.fuzzing.fuzz import CALM_S, FuzzPlan, draw, go_on_to_the_end, play, simulation, with_bad_results
from paceline.sim.fuzzing.random_parameters import schemes_of
from paceline.sim.fuzzing.runs import bad_results
from paceline.sim.fuzzing.script import plan_of, script_of, transcript
from paceline.sim.fuzzing.shrink import failure_of

Patch = pytest.MonkeyPatch

SEEDS = 400
CLUSTER = replace(uniform(4, 2), hazards=Hazards(servers_keep="replica"))
CHECKED = set(names()) - {"adpsgd", "gosgd", "halos", "noloco", "prague", "sgp", "tiers"}
"""The schemes whose servers see all that workers make: in gossip and in groups workers hand it to one another."""


def drawn(scheme: str, cluster: Cluster = CLUSTER) -> list[Cluster]:
    box = make(scheme, {})
    return [found for seed in range(SEEDS) if (found := bad_results.draw(seed, box, cluster, CALM_S))]


def plan_with_nan(seed: int) -> FuzzPlan | None:
    return with_bad_results(draw(seed, schemes_of(seed, names())))


def test_one_seed_in_four_draws_one_worker_or_all() -> None:
    found = drawn("asp")
    assert SEEDS // 6 < len(found) < SEEDS // 3
    faults = [cluster.faults[-1] for cluster in found]
    assert Counter(len(fault.workers) for fault in faults).keys() == {1, 4}
    assert all((fault.one_in, fault.for_s) == (1, 0.0) for fault in faults if len(fault.workers) == 4)
    assert {fault.one_in for fault in faults} == {1, 3, 20}
    assert {cluster.hazards.servers_keep for cluster in found if cluster.hazards} == {"replica"}


def test_only_where_servers_see_all_that_workers_make() -> None:
    assert {name for name in names() if drawn(name)} == CHECKED
    assert not drawn("bsp", uniform(4, 0))


@pytest.mark.parametrize("part", range(4))
def test_who_sends_nothing_else_is_expelled_and_nobody_else_has_a_strike(part: int) -> None:
    for seed in range(part, SEEDS, 4):
        if plan := plan_with_nan(seed):
            sim = simulation(plan)
            why = go_on_to_the_end(sim)
            assert sim.bad_results is not None
            assert sim.members.banned <= sim.bad_results.ever
            if len(sim.bad_results.always) == plan.cluster.workers:
                assert why, "the run goes on"


def test_the_model_has_diverged_where_nobodys_results_are_finite() -> None:
    whys = [
        go_on_to_the_end(simulation(plan))
        for seed in range(SEEDS)
        if (plan := plan_with_nan(seed)) and len(plan.cluster.faults[-1].workers) == plan.cluster.workers
    ]
    assert len(whys) > 10
    assert sum(why.startswith("the model has diverged: ") for why in whys) > len(whys) * 0.9


def test_what_is_drawn_is_a_fault_of_a_script_which_plays_it_again() -> None:
    plan = next(filter(None, map(plan_with_nan, range(SEEDS))))
    again = plan_of(script_of(plan))
    assert again.cluster == plan.cluster
    assert list(transcript(again)) == list(transcript(plan))


# A worker was rejected in an open round. The server was lost, and the worker pushed again to the one in its place: both
# had counted it. Or the next incarnation of the worker came, and had to wait for that round.
@pytest.mark.parametrize("seed", [332, 725, 357, 553, 987])
def test_who_is_rejected_in_an_open_round_counts_once_that_is_over(seed: int, monkeypatch: Patch) -> None:
    monkeypatch.setattr(bad_results, "ONE_SEED_IN", 1)
    assert (plan := plan_with_nan(seed))
    assert failure_of(plan) == ""


# ---- planted bugs ------------------------------------------------------------------------------------------------
def nothing_is_rejected(patch: Patch) -> None:
    patch.setattr(SliceGradientCheck, "push", lambda self, now, rank, v, onto=None, waiting=(): None)


def strikes_have_no_end(patch: Patch) -> None:
    patch.setattr(Strikes, "refused", lambda self, rank, came, waiting=0: None)


def the_coordinator_does_not_hear_of_them(patch: Patch) -> None:
    patch.setattr(CoordinatorMachine, "expel", lambda self, rank, reason: None)


def a_model_of_nan_goes_on(patch: Patch) -> None:
    def refuse(self: SliceGradientCheck, now: float, rank: int, waiting: object = ()) -> str:
        return "not finite"

    patch.setattr(SliceGradientCheck, "_refuse", refuse)


def what_is_rejected_is_applied(patch: Patch) -> None:
    patch.setattr(ClockedServer, "_shut_out", lambda self, now, src, push: (src,))


def samples_are_left_out_at_once(patch: Patch) -> None:
    drop = Leases._drop

    def twice(self: Leases, rank: int, refused: bool, data: object) -> None:
        if refused:
            for piece in data:  # type: ignore[attr-defined]
                self._suspect.add(piece)
        drop(self, rank, refused, data)  # type: ignore[arg-type]

    patch.setattr(Leases, "_drop", twice)


@pytest.mark.parametrize(
    "bug",
    [
        nothing_is_rejected,
        strikes_have_no_end,
        the_coordinator_does_not_hear_of_them,
        a_model_of_nan_goes_on,
        what_is_rejected_is_applied,
        samples_are_left_out_at_once,
    ],
)
def test_a_planted_bug_is_caught(bug: Callable[[Patch], None], monkeypatch: Patch) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError, match=r"seed \d+, at "):
        for seed in range(SEEDS):
            if plan := plan_with_nan(seed):
                play(plan, digest=False)
