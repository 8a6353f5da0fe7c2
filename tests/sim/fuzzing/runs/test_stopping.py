"""Runs that are to end: what is drawn, and that each ends once, at the right count, for everybody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.coordination.ending import RunEnding
from paceline.core.coordination.lifecycle import StopRule
from paceline.core.paramserver.gated_worker import ClockedWorker
from paceline.core.scheme import make, names
from paceline.core.trace import Ended, MemberChange, Record
from paceline.sim.checking.oracles.end_of_run import StopWish
from paceline.sim.fuzzing import random_parameters
from paceline.sim.fuzzing.fuzz import FuzzPlan, draw, go_to_its_end, play, simulation
from paceline.sim.fuzzing.random_parameters import schemes_of
from paceline.sim.fuzzing.runs.stopping import BOUND_S, ends_within_s
from paceline.sim.fuzzing.runs.stopping import draw as draw_wish
from paceline.sim.fuzzing.script import plan_of, script_of, transcript


def plans(seeds: range) -> Iterator[tuple[FuzzPlan, StopWish]]:
    for seed in seeds:
        plan = draw(seed, schemes_of(seed, names()))
        if wish := draw_wish(seed, plan.cluster, plan.leased[0]):
            yield plan, wish


@pytest.mark.parametrize("part", range(4))
def test_every_run_that_is_to_end_ends_once_and_nobody_waits_for_it(part: int) -> None:
    for plan, wish in plans(range(60 * part, 60 * (part + 1))):
        go_to_its_end(simulation(plan, wish=wish), wish)


def test_all_rules_are_drawn_and_all_reasons_end_a_run() -> None:
    records: list[Record] = []
    over = Counter(not go_to_its_end(simulation(plan, records.append, wish), wish) for plan, wish in plans(range(90)))
    reasons = {record.reason for record in records if isinstance(record, Ended)}
    assert {"seconds", "epochs", "target accuracy", "interrupted", "asked to"} <= reasons
    assert over[True] > 10 * over[False], "a run that fails shows nothing of its end"
    lost = [record.reason for record in records if isinstance(record, MemberChange) and record.event == "lost"]
    assert any("no step for" in reason for reason in lost), "workers hang, and are found"


def noted(seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[FuzzPlan, StopWish]:
    """The run of a seed among the schemes that were there when it was noted."""
    monkeypatch.setattr(random_parameters, "SHARE_OF_NEWER", 0.0)
    plan = draw(seed, schemes_of(seed, [name for name in names() if name not in random_parameters.NEWER]))
    wish = draw_wish(seed, plan.cluster, plan.leased[0])
    assert wish is not None
    return plan, wish


TWICE, AGAIN = 178, 5833
"""A newcomer that came too late was lost, and Finish went out twice. And: the push under way at a rollback was in the
snapshot, so the next one counted as its repetition; its samples were in no update, and the run never ended."""


@pytest.mark.parametrize("seed", [TWICE, AGAIN])
def test_seeds_that_found_a_bug(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, wish = noted(seed, monkeypatch)
    go_to_its_end(simulation(plan, wish=wish), wish)


HUNG_AND_RESTARTED = """
seed = 1424
scheme = "partial"
runs = ["stop"]
samples = [2, 7]
leased = [71, 1]
[cluster]
suspect_after_s = 3.0
[[cluster.hosts]]
name = "worker-0"
[[cluster.hosts.devices]]
factor = 1.03
[[cluster.hosts]]
name = "worker-1"
[[cluster.hosts.devices]]
factor = 2.45
[[cluster.hosts]]
name = "servers"
servers = 1
[[cluster.faults]]
kind = "restart"
at_s = 7.1
hosts = ["worker-1"]
[cluster.hazards]
late_s = 0.01
"""
"""Worker 1 hangs from 2.3 s on. Of the simulator: its samples came back to the queue when the hanging step was over."""


def test_the_samples_of_a_worker_that_hangs_and_is_restarted_are_trained_soon() -> None:
    play(plan_of(HUNG_AND_RESTARTED))


RESTARTED_WITH_A_PUSH = """
seed = 553
scheme = "lbbsp"
runs = ["stop"]
samples = [7, 6]
leased = [108, 3]
[cluster]
suspect_after_s = 3.0
[[cluster.hosts]]
name = "worker-0"
[[cluster.hosts.devices]]
[[cluster.hosts]]
name = "worker-1"
[[cluster.hosts.devices]]
factor = 3.0
[[cluster.hosts]]
name = "servers"
servers = 1
[[cluster.faults]]
kind = "restart"
at_s = 1.6
hosts = ["worker-0"]
[cluster.hazards]
late_s = 0.3
"""
"""Worker 0 is restarted while its push waits in the round. It used to push other samples for the same round, which
count as a repetition: nobody settled them, and the run never ended."""


def test_a_worker_that_is_restarted_hands_over_the_samples_that_it_had_handed_over() -> None:
    play(plan_of(RESTARTED_WITH_A_PUSH))


def test_a_rule_that_is_forgotten_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunEnding, "time_is_over", lambda self: None)
    with pytest.raises(AssertionError, match="the run has not ended"):
        for plan, wish in plans(range(60)):
            if wish.rule.seconds:
                go_to_its_end(simulation(plan, wish=wish), wish)


def test_a_clock_that_is_used_twice_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClockedWorker, "on_rollback", lambda self: setattr(self, "pushed", None))
    plan, wish = noted(AGAIN, monkeypatch)
    with pytest.raises(AssertionError, match="the run has not ended"):
        go_to_its_end(simulation(plan, wish=wish), wish)


def test_such_a_run_can_be_kept_as_a_script_and_read() -> None:
    plan = next(plan for plan, wish in plans(range(60)) if wish.rule.seconds)
    script = script_of(FuzzPlan(plan.seed, make(plan.scheme.name, {}), plan.cluster, plan.samples, runs=("stop",)))
    lines = list(transcript(plan_of(script)))
    assert any("ended reason=seconds" in line for line in lines)
    assert lines[-1].endswith("no violation")


def test_a_run_has_the_time_that_its_slowest_worker_takes_for_its_samples() -> None:
    plan = draw(35945, schemes_of(35945, names()))
    sim = simulation(plan, wish=StopWish(StopRule()))
    slowest_s = 1.5 * max(plan.cluster.seconds_per_step())
    assert ends_within_s(sim, StopWish(StopRule())) == BOUND_S
    assert ends_within_s(sim, StopWish(StopRule(samples=10))) == BOUND_S
    assert ends_within_s(sim, StopWish(StopRule(samples=350))) == 350 * slowest_s > BOUND_S
