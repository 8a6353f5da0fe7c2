"""Runs that are brought up: what is drawn, and that each begins with everybody or says who was lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.coordination import control_messages as control
from paceline.core.coordination.lifecycle import RunPhase
from paceline.core.coordinator.bring_up import BringUp
from paceline.core.coordinator.machine import CoordinatorMachine
from paceline.core.coordinator.phase_deadline import PhaseDeadline
from paceline.core.parties.lifecycle import PartyLifecycle
from paceline.core.scheme import names
from paceline.core.trace import MemberChange, Record
from paceline.sim.checking.oracles.bring_up import HANGS
from paceline.sim.checking.oracles.end_of_run import StopWish
from paceline.sim.fuzzing.fuzz import FuzzPlan, draw, go_to_its_end, play, simulation
from paceline.sim.fuzzing.random_parameters import schemes_of
from paceline.sim.fuzzing.runs import bring_up

SEEDS = 240


def plan_of(seed: int) -> FuzzPlan:
    return replace(draw(seed, schemes_of(seed, names())), runs=("bring-up",))


def wishes(seeds: range) -> Iterator[tuple[FuzzPlan, StopWish]]:
    for seed in seeds:
        plan = plan_of(seed)
        if wish := bring_up.draw(seed, plan.cluster, plan.leased[0]):
            yield plan, wish


def hanging(what: str) -> str:
    """Why a run without faults fails in which one never says `what`."""
    plan, wish = next(wishes(range(SEEDS)))
    assert wish.starts is not None
    starts = replace(wish.starts, dies=(), hangs=("worker 0", what), evaluator_at_s=None)
    calm = replace(plan, cluster=replace(plan.cluster, faults=()))
    return go_to_its_end(simulation(calm, None, replace(wish, starts=starts)), wish, bring_up.check)


WAITED = {
    "Hello": "waited 120 s for worker 0 while waiting for everybody to say hello",
    "Ready": "waited 120 s for worker 0 while waiting for the models",
    "Prepared": "waited 120 s for worker 0 while placing the workers",
    "Saved": "waited 120 s for worker 0 while evaluating and saving the last model",
}


@pytest.mark.parametrize("what", HANGS)
def test_a_run_in_which_one_hangs_ends_and_names_it(what: str) -> None:
    assert hanging(what) == WAITED[what]


def test_in_some_runs_one_hangs() -> None:
    said = [wish.starts.hangs[1] for _, wish in wishes(range(4 * SEEDS)) if wish.starts and wish.starts.hangs]
    assert set(said) == set(HANGS)


@pytest.mark.parametrize(("said", "seen"), [("", "has not ended|is not over"), (WAITED["Hello"], "after 0 s a phase")])
def test_a_deadline_that_is_forgotten_or_too_early_is_seen(
    monkeypatch: pytest.MonkeyPatch, said: str, seen: str
) -> None:
    monkeypatch.setattr(PhaseDeadline, "overdue", lambda self: said)
    with pytest.raises(AssertionError, match=seen):
        hanging("Hello")


def test_a_deadline_that_names_one_who_has_answered_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CoordinatorMachine, "missing", lambda self: [])
    with pytest.raises(AssertionError, match="though nobody hangs: waited 120 s for the workers"):
        hanging("Hello")


@pytest.mark.parametrize("part", range(4))
def test_a_run_begins_with_everybody_or_says_who_was_lost(part: int) -> None:
    for seed in range(part, SEEDS, 4):
        play(plan_of(seed))


def test_runs_begin_at_once_and_after_a_while_and_workers_come_before_and_after_that() -> None:
    records: list[Record] = []
    ends: Counter[str] = Counter()
    came_early = 0
    for plan, wish in wishes(range(SEEDS)):
        assert wish.starts is not None
        sim = simulation(plan, records.append, wish)
        why = go_to_its_end(sim, wish, bring_up.check)
        began = sim.members.bring_up and sim.members.bring_up.began_s
        ends["trained" if began is not None else "failed before"] += 1
        ends["failed later"] += bool(why) and began is not None
        early = [rank for rank in wish.starts.late if began and wish.starts.at_s[f"worker {rank}"] < began]
        came_early += len(early)
    assert ends["trained"] > ends["failed before"] > 5
    assert came_early > 10
    first = [r for r in records if isinstance(r, MemberChange) and r.reason.startswith("its first incarnation")]
    assert len(first) > 10, "workers that nobody waited for train"
    evaluators = Counter(r.event for r in records if isinstance(r, MemberChange) and r.party == "evaluator")
    assert evaluators["lost"] >= evaluators["returned"] > 5, "evaluators are lost, and come again"


def found(message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        for seed in range(SEEDS):
            play(plan_of(seed))


def test_a_worker_that_gets_its_plan_before_the_servers_have_theirs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    concerned = BringUp._concerned

    def not_the_servers(self: BringUp) -> object:
        return [] if self._run.state.phase is RunPhase.PLACING_SERVERS else concerned(self)

    monkeypatch.setattr(BringUp, "_concerned", not_the_servers)
    found("is told Plan, and server . has not taken up its plan")


def test_a_worker_that_comes_early_and_is_told_what_the_others_are_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_told_the_roster(self: BringUp, src: object, hello: object) -> None:
        self._run.decide.send([src], self._run.roster.roster(server_view=0))  # type: ignore[list-item]

    def reaches(self: object, party: object) -> bool:
        return True

    monkeypatch.setattr(BringUp, "comes_early", is_told_the_roster)
    monkeypatch.setattr("paceline.sim.faults.parties.bring_up.SimulatedBringUp.is_connected", reaches)
    found("is told Roster, and the run that it is to join has not begun|is not over|has not ended")


def test_a_party_that_says_it_is_prepared_before_it_is_asked_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartyLifecycle, "took_up", lambda self: [])
    found("a phase takes too long, though nobody hangs: waited 120 s for server 0 while placing")
    assert control.Prepared().number == 0


def test_a_loss_that_nobody_has_had_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    told = CoordinatorMachine.told

    def loses_who_is_ready(self: CoordinatorMachine, src: object, message: object) -> None:
        told(self, src, message)  # type: ignore[arg-type]
        if isinstance(message, control.Ready) and not self.run.state.training:
            self.lost(src, "it was late")  # type: ignore[arg-type]

    monkeypatch.setattr(CoordinatorMachine, "told", loses_who_is_ready)
    found("fails before it trains, though nobody has failed")
