"""Evaluators that the coordinator loses, and those that come in their place."""

from __future__ import annotations

import contextlib
import queue
from typing import Any
from unittest.mock import Mock

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.lifecycle import RunPhase
from paceline.core.coordination.party import EVALUATOR
from paceline.core.coordinator.evaluator_watch import EvaluatorLives
from paceline.core.trace import MemberChange
from tests.live.fakes import Recorder
from tests.live.scripted_parties import S0, W0, W1, Company, progress


def comes_again(company: Company, incarnation: int = 1) -> None:
    company.heard[EVALUATOR] = Recorder()
    company.hub.transport(EVALUATOR, incarnation=incarnation).open(company.heard[EVALUATOR])
    hello = control.Hello(address="hub:again", pid=2, host="here", device="cpu", incarnation=incarnation)
    company.say(EVALUATOR, hello)


def events(company: Company) -> list[str]:
    company.settled()
    told = [r for r in company.ears.records if isinstance(r, MemberChange) and r.party == "evaluator"]
    return [f"{record.event}: {record.reason}" for record in told if record.event != "joined"]


def hears_all_of_it(company: Company) -> control.Roster:
    roster = company.hears(EVALUATOR)
    assert isinstance(roster, control.Roster)
    assert isinstance(company.hears(EVALUATOR), control.Plan)
    assert company.hears(EVALUATOR).samples == company.coordinator.samples
    return roster


def stops(company: Company) -> None:
    company.coordinator.stop("seconds")
    for who in company.workers:
        company.say(who, control.Left(reason="seconds"))
    company.settled()
    assert company.coordinator.phase is RunPhase.FINISHING


def ends(company: Company) -> None:
    for who in company.everybody:
        company.say(who, control.Saved())
    assert company.told("finished") == "seconds"


def test_one_that_is_heard_counts_as_there_however_long_the_run_lasts() -> None:
    """It makes no steps, so a limit on the time between two steps, or until the first, must not hold for it."""
    clock, told = [0.0], Mock()
    state = Mock(phase=RunPhase.TRAINING, training=True)
    run: Any = Mock(
        state=state, now=lambda: clock[0], decide=told, roster=Mock(evaluator=True, hellos={}), totals=Mock(samples=0)
    )
    watch = EvaluatorLives(run, Mock(under_way=False), Mock(), dead_after_s=5.0)
    watch.begin()
    for second in range(1, 600):
        clock[0] = float(second)
        watch.heard()
        watch.look()
    told.record.assert_not_called()
    for second in range(600, 610):
        clock[0] = float(second)
        watch.look()
    assert [call.args[0].event for call in told.record.call_args_list] == ["lost"], "silence is still noticed"
    watch.hello(control.Hello(address="", pid=1, host="", device="", incarnation=1))
    told.record.reset_mock()
    for second in range(610, 1200):
        clock[0] = float(second)
        watch.heard()
        watch.look()
    told.record.assert_not_called()


def test_training_goes_on_without_it_and_the_next_one_learns_where_all_are(companies: Any) -> None:
    company: Company = companies(allreduce="servers")
    company.train()
    company.say(W0, progress(70))
    company.settled()
    company.kill(EVALUATOR)
    company.coordinator.ended(EVALUATOR, "it was killed")  # its process is heard of as well
    assert events(company) == ["lost: it left; training goes on"]
    company.kill(W0)
    comes_again(company)
    roster = hears_all_of_it(company)
    assert (roster.gone, roster.lost, roster.addresses["evaluator"]) == ((0,), (0,), "hub:again")
    assert events(company)[1:] == ["returned: incarnation 2"]
    company.coordinator.stop("seconds")
    company.say(W1, control.Left(reason="seconds"))
    assert company.hears(EVALUATOR) == control.WorkerLeft(rank=1)
    assert company.hears(EVALUATOR) == control.Finish(holder=1, reason="seconds", samples=70)
    for who in (S0, W1, EVALUATOR):
        company.say(who, control.Saved())
    assert company.told("finished") == "seconds"


def test_one_that_comes_when_nobody_trains_any_more_is_told_to_look_at_the_last_model(companies: Any) -> None:
    company: Company = companies()
    company.train()
    company.kill(EVALUATOR)
    stops(company)
    assert EVALUATOR in company.coordinator.missing()
    comes_again(company)
    hears_all_of_it(company)
    assert company.hears(EVALUATOR) == control.Finish(holder=1, reason="seconds")
    company.kill(EVALUATOR)
    comes_again(company, incarnation=2)
    ends(company)
    assert [event.partition(":")[0] for event in events(company)] == ["lost", "returned"] * 2


def test_a_silent_one_is_given_up_also_when_nobody_trains_any_more(companies: Any) -> None:
    company: Company = companies(dead_after_s=1.0)
    company.train()
    stops(company)
    lost = []
    while not lost:
        with contextlib.suppress(queue.Empty):
            lost.append(company.heard[EVALUATOR].losses.get(timeout=0.1))
        for who in (S0, *company.workers):
            company.say(who, control.Beat())
    (told,) = events(company)
    assert told.startswith("lost: silent for ")
    company.kill(EVALUATOR)
    comes_again(company)
    ends(company)


def test_one_that_is_lost_when_it_has_saved_the_model_is_not_waited_for(companies: Any) -> None:
    company: Company = companies()
    company.train()
    stops(company)
    company.say(EVALUATOR, control.Saved())
    company.settled()
    assert company.coordinator.banned == set()
    company.kill(EVALUATOR)
    company.settled()
    assert company.coordinator.banned == {EVALUATOR}
    for who in (S0, W0, W1):
        company.say(who, control.Saved())
    assert company.told("finished") == "seconds"


def test_one_that_is_lost_before_training_starts_ends_the_run(companies: Any) -> None:
    company: Company = companies()
    company.hello()
    company.kill(EVALUATOR)
    assert company.told("failed") == (EVALUATOR, "lost evaluator: it left", "")
