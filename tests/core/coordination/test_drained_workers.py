"""Workers that are drained: they exit when all others know that they have left, and the run goes on."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.lifecycle import RunPhase
from paceline.core.coordination.party import EVALUATOR, Party, worker
from paceline.core.trace import MemberChange
from tests.live.scripted_parties import S0, W0, W1, Company


def drains(company: Company, who: Party, others: dict[Party, list[Any]], view: int = 2) -> None:
    """All others hear that `who` is drained, and acknowledge; it exits, and they hear that it has ended."""
    for other in others:
        assert company.hears(other) == control.WorkerLeft(rank=who.index, view=view)
    for other in others:
        company.settled()
        assert company.heard[who].delivered.empty(), f"{other} may still send it something"
        company.say(other, control.Aware(view=view))
    assert company.hears(who) == control.Exit()
    company.settled()
    assert all(company.heard[other].delivered.empty() for other in others), "its process may still answer"
    company.kill(who)
    for other in others:
        assert company.hears(other) == control.WorkerLeft(rank=who.index, lost=True)


def test_a_drained_worker_does_not_wait_for_one_that_is_lost_and_hears_of_that(companies: Any) -> None:
    company: Company = companies(workers=3, servers=0, evaluator=False, allreduce="servers")
    w2 = worker(2)
    company.train()
    company.say(w2, control.Left(reason="SIGTERM", drained=True))
    company.say(W1, control.Aware(view=2))
    company.settled()
    company.kill(W0)
    assert company.hears(w2) == control.WorkerLeft(rank=0, lost=True), "it may have asked that one something"
    assert company.hears(w2) == control.Exit()
    company.settled()
    assert company.coordinator.survives(w2)
    assert company.coordinator.phase is RunPhase.TRAINING


@pytest.mark.parametrize("allreduce", ["ring", "servers"])
def test_a_drained_worker_is_recorded_as_that_whoever_carries_the_means(companies: Any, allreduce: str) -> None:
    """Where workers carry them it stays connected, and the others go on without it all the same."""
    company: Company = companies(workers=3, servers=0, evaluator=False, allreduce=allreduce)
    company.train()
    company.say(W1, control.Left(reason="SIGTERM", drained=True))
    company.settled()
    changes = [r for r in company.ears.records if isinstance(r, MemberChange) and r.event != "joined"]
    assert [(r.event, r.reason) for r in changes] == [("drained", "SIGTERM; 2 of 3 continue")]


def test_two_workers_that_are_drained_at_once_may_both_exit(companies: Any) -> None:
    company: Company = companies(workers=3, servers=0, evaluator=False, allreduce="servers")
    w2 = worker(2)
    company.train()
    for who in (W1, w2):
        company.say(who, control.Left(reason="SIGTERM", drained=True))
        company.settled()
    assert [company.hears(W0).view for _ in range(2)] == [2, 3]
    assert company.hears(w2) == control.WorkerLeft(rank=1, view=2)
    company.say(W0, control.Aware(view=3))
    assert [company.hears(who) for who in (W1, w2)] == [control.Exit(), control.Exit()]


def test_a_drained_worker_that_ends_before_it_may_is_missed_by_nobody(companies: Any) -> None:
    company: Company = companies(allreduce="servers", evaluator=False)
    company.train()
    company.say(W1, control.Left(reason="SIGTERM", drained=True))
    company.settled()
    company.kill(W1)
    for who in (S0, W0):
        assert company.hears(who) == control.WorkerLeft(rank=1, view=2)
        assert company.hears(who) == control.WorkerLeft(rank=1, lost=True)
        company.say(who, control.Aware(view=2))
    company.settled()
    events = [r.event for r in company.ears.records if isinstance(r, MemberChange) and r.event != "joined"]
    assert events == ["drained"]
    company.say(W0, control.Left(reason="steps"))
    assert company.hears(W0) == control.Finish(holder=0, reason="steps")
    assert company.hears(S0) == control.WorkerLeft(rank=0)
    assert company.hears(S0) == control.Finish(holder=0, reason="steps")
    for who in (S0, W0):
        company.say(who, control.Saved())
    assert company.told("finished") == "steps"


def test_where_the_run_ends_before_all_know_a_drained_worker_sees_it_to_its_end(companies: Any) -> None:
    company: Company = companies(allreduce="servers", evaluator=False)
    company.train()
    company.say(W1, control.Left(reason="SIGTERM", drained=True))
    company.settled()
    company.coordinator.stop("enough")
    company.settled()
    company.say(S0, control.Aware(view=2))
    company.say(W0, control.Aware(view=2))
    company.say(W0, control.Left(reason="enough"))
    assert company.hears(W1) == control.Finish(holder=0, reason="enough")
    for who in (S0, W0, W1):
        company.say(who, control.Saved())
    assert company.told("finished") == "enough"
    assert company.hears(W1) == control.Exit()


def test_a_drained_worker_that_may_exit_is_not_waited_for_when_the_run_ends(companies: Any) -> None:
    company: Company = companies(allreduce="servers", evaluator=False)
    company.train()
    company.say(W1, control.Left(reason="SIGTERM", drained=True))
    company.say(S0, control.Aware(view=2))
    company.say(W0, control.Aware(view=2))
    assert company.hears(W1) == control.Exit()
    company.say(W0, control.Left(reason="steps"))
    company.settled()
    for who in (S0, W0):
        company.say(who, control.Saved())
    assert company.told("finished") == "steps"
    assert company.hears(W1) == control.Exit(), "it is asked for no model before"


def test_one_that_goes_home_is_no_loss_and_may_end_before_the_others_do(companies: Any) -> None:
    company: Company = companies(allreduce="servers")
    company.train()
    company.say(W1, control.Left(reason="SIGTERM", drained=True))
    drains(company, W1, {S0: [], EVALUATOR: [], W0: []})
    company.coordinator.ended(W1, "worker 1 ended before the run was over")
    company.settled()
    told = [(r.event, r.reason) for r in company.ears.records if isinstance(r, MemberChange) and r.event != "joined"]
    assert told == [("drained", "SIGTERM; 1 of 2 continue")]
    assert company.coordinator.banned == {W1}
    company.say(
        W0, control.Left(reason="SIGTERM", drained=True)
    )  # the last one: somebody has to see the run to its end
    for who in (S0, EVALUATOR):
        assert company.hears(who) == control.WorkerLeft(rank=0)
    for who in (S0, EVALUATOR, W0):
        assert company.hears(who) == control.Finish(holder=0, reason="SIGTERM")
        company.say(who, control.Saved())
    assert company.told("finished") == "SIGTERM"
