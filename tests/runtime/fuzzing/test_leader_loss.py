"""Runs whose leader is lost and that are resumed from its disk; and bugs planted in what they are resumed with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.checkpoint.folder_store import FolderStore
from paceline.core.coordination.sample_leases import Leasing
from paceline.core.fault_tolerance import checkpoints
from paceline.runtime.fuzzing import leader_loss
from paceline.runtime.fuzzing.leader_loss import LeaderPlan
from paceline.sim.fuzzing.fuzz import draw
from paceline.sim.fuzzing.random_parameters import schemes_of
from paceline.sim.kernel.virtual_disk import DiskFaults
from paceline.sim.world import World

SCHEMES = ["asp", "bsp", "dcasgd", "decoupled", "dssp", "ksync", "partial", "ssp", "weedout"]
SEEDS = 120


def plan_of(seed: int) -> LeaderPlan | None:
    return leader_loss.draw(draw(seed, schemes_of(seed, SCHEMES)))


@pytest.mark.parametrize("part", range(4))
def test_what_was_reported_as_saved_is_there_and_the_run_goes_on_to_its_end(part: int) -> None:
    told: Counter[str] = Counter()
    for seed in range(part, SEEDS, 4):
        if plan := plan_of(seed):
            told += leader_loss.play(plan)
    assert told["resumed"] > 5


def test_seeds_draw_every_kind_of_loss() -> None:
    plans = [plan for seed in range(4 * SEEDS) if (plan := plan_of(seed))]
    losses = [loss for plan in plans for loss in plan.losses]
    assert {plan.plans[0].scheme.name for plan in plans} == set(SCHEMES)
    assert {len(plan.losses) for plan in plans} == {1, 2}
    assert {bool(plan.goal) for plan in plans} == {True, False}
    assert {loss.cuts_power for loss in losses} == {True, False}
    assert {loss.stops_at == DiskFaults().stops_at for loss in losses} == {True, False}
    assert "the leader is lost: at " in str(plans[0])


def test_schemes_whose_servers_cannot_return_to_a_state_have_no_such_run() -> None:
    assert [seed for seed in range(30) if leader_loss.draw(draw(seed, schemes_of(seed, ["gosgd", "localsgd"])))] == []


# ---- planted bugs ------------------------------------------------------------------------------------------
Change = Callable[[dict[str, Any]], dict[str, Any]]


def resumed_otherwise(patch: pytest.MonkeyPatch, change: Change) -> None:
    patch.setattr(
        leader_loss, "resumed_tables", lambda *told, **more: change(checkpoints.resumed_tables(*told, **more))
    )


def done_samples_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    resumed_otherwise(patch, lambda tables: {**tables, "done": ()})


def versions_begin_anew(patch: pytest.MonkeyPatch) -> None:
    resumed_otherwise(patch, lambda tables: {**tables, "version": 0})


def clocks_begin_anew(patch: pytest.MonkeyPatch) -> None:
    resumed_otherwise(patch, lambda tables: {**tables, "clocks": [[rank, 0] for rank, _ in tables["clocks"]]})


def the_last_slice_speaks_for_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leader_loss, "kept_tables", lambda slices: dict(slices[-1]))


def leases_begin_anew(patch: pytest.MonkeyPatch) -> None:
    begin = Leasing.__init__

    def without(self: Leasing, tell: Any, recorded: Any, now: Any, done: Any, **more: Any) -> None:
        begin(self, tell, recorded, now, (), **more)

    patch.setattr(Leasing, "__init__", without)


def workers_do_not_know_their_clocks(patch: pytest.MonkeyPatch) -> None:
    def only_servers(self: World, tables: dict[str, Any]) -> None:
        for party in self.servers:
            party.role.load_state_dict(tables)

    patch.setattr(World, "resume", only_servers)


def the_oldest_checkpoint_is_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FolderStore, "newest", lambda self: (min(self.numbers(), default=None), []))


PLANTED = [
    done_samples_are_forgotten,
    versions_begin_anew,
    clocks_begin_anew,
    the_last_slice_speaks_for_all,
    leases_begin_anew,
    workers_do_not_know_their_clocks,
    the_oldest_checkpoint_is_taken,
]


@pytest.mark.parametrize("mutant", PLANTED, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_caught(mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError, match=r"seed \d+, at "):
        for seed in range(SEEDS):
            if plan := plan_of(seed):
                leader_loss.play(plan)
