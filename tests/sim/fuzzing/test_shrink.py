"""A failing run shrinks to what it needs to fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.scheme import names
from paceline.sim.fuzzing import shrink as shrinking
from paceline.sim.fuzzing.fuzz import FuzzPlan, draw
from paceline.sim.fuzzing.random_parameters import NEWER, schemes_of
from paceline.sim.fuzzing.script import plan_of, script_of
from paceline.sim.fuzzing.shrink import failure_of, kind_of, shrink
from tests.sim import driver_mutants
from tests.sim.all_mutants import Mutant

NOTED = [name for name in names() if name not in NEWER]
"""The schemes that the seeds here were found with."""


def plan(seed: int) -> FuzzPlan:
    return draw(seed, schemes_of(seed, NOTED))


@pytest.mark.parametrize(
    ("mutant", "seed"),
    [
        (driver_mutants.dedup_is_forgotten_in_a_crash, 3),
        (driver_mutants.acknowledged_before_it_is_durable, 35),
        (driver_mutants.a_newcomer_enters_before_everybody_knows, 27),
    ],
)
def test_a_planted_bug_needs_one_fault_and_two_workers(
    mutant: Mutant, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    whole = plan(seed)
    failure = failure_of(whole)
    assert failure
    told: list[int] = []
    small = shrink(whole, failure, time_is_up=lambda: False, progress=lambda plan, tried: told.append(tried))
    assert small.whole
    assert kind_of(small.failure) == kind_of(failure)
    assert len(small.plan.cluster.faults) == 1 < len(whole.cluster.faults)
    assert small.plan.cluster.workers == 2 < whole.cluster.workers
    assert told == sorted(told)
    again = plan_of(script_of(small.plan))
    assert failure_of(again) == small.failure, "the script fails in just the same way"
    monkeypatch.undo()
    assert failure_of(again) == "", "without the bug it passes"


def test_when_the_time_is_up_the_smallest_so_far_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    driver_mutants.acknowledged_before_it_is_durable(monkeypatch)
    whole = plan(35)
    failure, left = failure_of(whole), iter([False] * 6)
    small = shrink(whole, failure, time_is_up=lambda: next(left, True))
    assert (small.tried, small.whole) == (6, False)
    assert len(small.plan.cluster.faults) <= len(whole.cluster.faults)
    assert failure_of(small.plan) == small.failure


def test_another_failure_is_not_taken_for_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = plan(35)
    monkeypatch.setattr(shrinking, "failure_of", lambda plan: "InvariantBroken: something else altogether went wrong")
    small = shrink(whole, "InvariantBroken: nobody waits for ever", time_is_up=lambda: False)
    assert small.plan == whole
    assert small.tried > 0


def test_a_failure_is_known_again_whatever_its_numbers_are() -> None:
    one = "InvariantBroken: gsp, seed 3, at 157.658 s: worker 0 was told that server 2 took it; lately: this"
    other = "InvariantBroken: bsp, seed 35, at 9.5 s: worker 13 was told that server 0 took it; lately: that"
    assert kind_of(one) == kind_of(other) == "InvariantBroken worker # was told that"


def test_a_liar_becomes_a_fault_among_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = next(seed for seed in range(100) if shrinking.with_a_liar(plan(seed)))
    lies = [fault for fault in shrinking.with_a_liar(plan(seed)).cluster.faults if fault.kind == "lie"]  # type: ignore[union-attr]
    monkeypatch.setattr(
        shrinking, "failure_of", lambda plan: "E: x" if any(f.kind == "lie" for f in plan.cluster.faults) else ""
    )
    small = shrink(plan(seed), "E: x", time_is_up=lambda: False)
    ((lie,),) = (small.plan.cluster.faults,)
    assert lie == replace(lies[0], workers=lie.workers)
    assert small.plan.runs == ("faults",)
