"""Runs whose leader is lost, as scripts: read back they are the same runs, and a failure shrinks to one."""

from __future__ import annotations

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.errors import ConfigError
from paceline.runtime.fuzzing.leader_loss import LeaderPlan, play
from paceline.runtime.fuzzing.leader_script import is_of_a_leader, plan_from, script_of, shrunk, transcript
from paceline.sim.fuzzing.script import table_of
from paceline.sim.fuzzing.shrink import kind_of
from tests.runtime.fuzzing.test_leader_loss import SEEDS, clocks_begin_anew, leases_begin_anew, plan_of

PLANS = [plan for seed in range(SEEDS) if (plan := plan_of(seed))]


def failure_of(plan: LeaderPlan) -> str:
    try:
        play(plan)
    except AssertionError as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def test_whatever_is_drawn_is_read_back_as_it_was() -> None:
    assert {len(plan.losses) for plan in PLANS} == {1, 2}
    for plan in PLANS:
        table = table_of(script_of(plan, about="two\nlines"))
        assert is_of_a_leader(table)
        assert plan_from(table) == plan


@pytest.mark.parametrize("mutant", [leases_begin_anew, clocks_begin_anew], ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_shrinks_to_a_script_that_fails_again(mutant: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(mutant)
    mutant(monkeypatch)
    whole = next(plan for plan in PLANS if len(plan.losses) == 2 and failure_of(plan))
    failure = failure_of(whole)
    told: list[int] = []
    small = shrunk(whole, failure, time_is_up=lambda: False, progress=lambda plan, tried: told.append(tried))
    assert small.whole
    assert kind_of(small.failure) == kind_of(failure)
    assert len(small.plan.losses) == 1
    assert sum(len(run.cluster.faults) for run in small.plan.plans) <= 1
    assert small.plan.plans[0].cluster.workers == 2
    assert told == sorted(told)
    again = plan_from(table_of(script_of(small.plan, about=small.failure)))
    assert failure_of(again) == small.failure, "the script fails in just the same way"
    lines = list(transcript(again))
    assert next(line for line in lines if line.startswith("RUN")) == "RUN begins with the model"
    assert sum("LEADER LOST, " in line for line in lines) == 1
    assert "VIOLATION: " in lines[-1]
    monkeypatch.undo()
    assert failure_of(again) == "", "without the bug it passes"
    assert list(transcript(again))[-1].endswith(" s  no violation")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("goal = ", "goal = -", "goal = -"),
        ("[[losses]]", "[[loss]]", r"needs \[\[losses\]\]"),
        ("[[losses]]", "[losses]", r"needs \[\[losses\]\]"),
        ("at_s = 7\n", "", "losses needs at_s"),
        ('servers_keep = "', 'servers_keep = "all" # "', "servers_keep: give"),
    ],
)
def test_what_is_wrong_is_one_line(old: str, new: str, says: str) -> None:
    plan = next(plan for plan in PLANS if len(plan.losses) == 1 and plan.goal)
    table = script_of(plan).replace(f"at_s = {plan.losses[0].at_s}", "at_s = 7")
    with pytest.raises(ConfigError, match=says) as error:
        plan_from(table_of(table.replace(old, new)))
    assert "\n" not in str(error.value)
