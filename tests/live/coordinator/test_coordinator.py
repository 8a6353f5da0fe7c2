"""The coordinator's end of the control plane, against parties that follow a script."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.core.errors import ConfigError
from paceline.core.sharding import Layout
from paceline.core.trace import Ended, Evaluated, MemberChange
from paceline.live.coordinator.lifecycle import RunPhase, StopRule
from paceline.live.party import EVALUATOR, Party
from paceline.live.protocol import control_messages as control
from paceline.live.protocol.transport import Kind
from tests.live.fakes import take, vector
from tests.live.node_fixture import Ask
from tests.live.scripted_parties import S0, W0, W1, Company, finish, judged, progress, ready


def test_a_run_is_brought_up_step_by_step(companies: Any) -> None:
    company: Company = companies()
    assert company.coordinator.phase is RunPhase.GATHERING
    company.hello()
    assert company.coordinator.phase is RunPhase.READYING
    company.say(W0, ready(seconds=0.25))
    company.say(W1, ready())
    plan = company.hears(S0)
    assert plan == control.Plan(
        workers=2,
        servers=1,
        length=10,
        layout=Layout((0, 3, 6, 10), (0, 0, 0)),
        seconds_per_step=(0.25, 0.5),
        optimizer="sgd",
        devices=("cpu", "cpu"),
        hosts=("here", "here"),
        allreduce="ring",
        notes=("a reason", "2 workers, 1 servers"),
    )
    company.settled()
    assert company.coordinator.phase is RunPhase.PLACING_SERVERS
    assert all(company.heard[who].delivered.empty() for who in (W0, W1, EVALUATOR)), "the servers come first"
    company.say(S0, control.Prepared())
    assert [company.hears(who) for who in (W0, W1, EVALUATOR)] == [plan] * 3
    company.say(W0, control.Prepared())
    company.settled()
    assert company.coordinator.missing() == [W1]
    company.say(W1, control.Prepared())
    company.all_hear(control.Go)
    assert company.coordinator.phase is RunPhase.TRAINING
    assert company.told("started") == plan
    assert (company.place.workers, company.place.seed, company.place.seconds_per_step) == ((0, 1), 5, (0.25, 0.5))


def test_everybody_learns_where_everybody_is(companies: Any) -> None:
    company: Company = companies()
    for who in company.everybody:
        company.say(who, control.Hello(address=f"hub:{who}", pid=1, host="here", device="cpu"))
    for who in company.everybody:
        assert company.hears(who).addresses == {str(other): f"hub:{other}" for other in company.everybody}
    joined = [record.party for record in company.ears.records if isinstance(record, MemberChange)]
    assert sorted(joined) == sorted(map(str, company.everybody))


@pytest.mark.parametrize("not_started", [S0, W1, EVALUATOR], ids=str)
def test_whoever_never_says_hello_is_named(companies: Any, not_started: Party) -> None:
    company: Company = companies()
    for who in company.everybody:
        if who != not_started:
            company.say(who, control.Hello(address="a", pid=1, host="h", device="cpu"))
    company.settled()
    assert company.coordinator.missing() == [not_started]
    assert company.coordinator.phase.value == "waiting for everybody to say hello"


def test_a_run_without_servers_has_nothing_to_place_on_them(companies: Any) -> None:
    company: Company = companies(servers=0, evaluator=False)
    company.train()
    assert company.plan.servers == 0


def test_a_speed_that_one_worker_does_not_know_is_known_of_nobody(companies: Any) -> None:
    company: Company = companies(evaluator=False)
    company.hello()
    company.say(W0, ready())
    company.say(W1, ready(seconds=0.0))
    assert company.hears(S0).seconds_per_step == ()


@pytest.mark.parametrize("other", [ready(fingerprint="g"), ready(length=11)], ids=["names", "length"])
def test_a_worker_with_another_model_is_refused_by_name(companies: Any, other: control.Ready) -> None:
    company: Company = companies()
    company.hello()
    company.say(W0, ready())
    company.say(W1, other)
    refused = take(company.escaped)
    assert isinstance(refused, ConfigError)
    assert "worker 1" in str(refused)
    assert "worker 0" in str(refused)
    assert company.heard[S0].delivered.empty()


def test_the_samples_of_a_run_are_given_to_its_workers_once(companies: Any) -> None:
    """What a worker that leaves has not trained of them is given to another."""
    company: Company = companies(stop_rule=StopRule(samples=100, behind=20))
    company.train()
    assert company.plan.samples == 100
    for who, given in ((W0, 16), (W1, 16), (W1, 8), (W1, 8)):
        company.say(who, control.Ask(samples=64, batch=8))
        assert company.hears(who) == control.Quota(samples=given)
    company.say(W0, progress(10))
    assert company.hears(W0) == company.hears(EVALUATOR) == control.Total(samples=10)
    company.say(W0, control.Left(reason="steps"))
    company.all_hear(control.WorkerLeft, [S0, EVALUATOR, W1])
    given = []
    while not given or given[-1]:
        company.say(W1, control.Ask(samples=64, batch=8))
        given.append(company.hears(W1).samples)
    assert sum(given) + 16 + 8 + 8 + 10 == 100 - 20


def test_the_run_ends_when_its_seconds_are_over(companies: Any) -> None:
    company: Company = companies(stop_rule=StopRule(seconds=0.05))
    company.train()
    finish(company, "seconds")


def test_the_run_ends_when_the_target_is_reached_and_not_before(companies: Any) -> None:
    company: Company = companies(stop_rule=StopRule(target_accuracy=0.9))
    company.train()
    company.say(EVALUATOR, judged(0.89))
    company.settled()
    assert not company.coordinator.stopping
    company.say(EVALUATOR, judged(0.9))
    finish(company, "target accuracy")
    accuracies = [record.accuracy for record in company.ears.records if isinstance(record, Evaluated)]
    assert accuracies == [0.89, 0.9]


def test_the_first_rule_that_holds_is_the_reason(companies: Any) -> None:
    company: Company = companies(stop_rule=StopRule(target_accuracy=0.5))
    company.train()
    company.coordinator.stop("interrupted")
    company.coordinator.stop("interrupted again")
    company.say(EVALUATOR, judged(0.9))
    finish(company, "interrupted")


def test_the_last_look_is_dated_no_later_than_the_end(companies: Any) -> None:
    company: Company = companies()
    company.train()
    company.coordinator.stop("enough")
    company.settled()
    company.say(EVALUATOR, judged(0.9, at=1e6))
    company.settled()
    (last,) = [record for record in company.ears.records if isinstance(record, Evaluated)]
    (ended,) = [record for record in company.ears.records if isinstance(record, Ended)]
    assert last.at == ended.at
    finish(company, "enough")


def test_a_worker_that_leaves_early_is_gone_for_all_others_and_the_scheme(companies: Any) -> None:
    company: Company = companies()
    company.train()
    company.say(W0, control.Left(reason="steps"))
    assert company.hears(S0) == control.WorkerLeft(rank=0)
    assert company.hears(EVALUATOR) == control.WorkerLeft(rank=0)
    assert company.hears(W1) == control.WorkerLeft(rank=0)
    company.say(W1, Ask(v=vector(1), n=0), Kind.CALL)
    assert company.hears(W1).n == 1, "the coordinator's box knows of it"
    assert company.coordinator.phase is RunPhase.TRAINING
    company.coordinator.stop("enough")
    assert company.hears(W1) == control.Stop(reason="enough")
    company.say(W1, control.Left(reason="enough"))
    company.settled()
    assert company.coordinator.phase is RunPhase.FINISHING
    assert company.heard[W0].next()[1] == control.Finish(holder=1, reason="enough"), (
        "it is not told to stop, for it has"
    )


def test_the_run_is_over_when_the_last_worker_has_left_by_itself(companies: Any) -> None:
    company: Company = companies()
    company.train()
    for who in (W1, W0):
        company.say(who, control.Left(reason="steps"))
    assert company.hears(W0) == control.WorkerLeft(rank=1), "and worker 1 hears of nobody: it had left before"
    for who in (W0, W1):
        assert company.hears(who) == control.Finish(holder=0, reason="steps")
    for who in company.everybody:
        company.say(who, control.Saved())
    assert company.told("finished") == "steps"


def test_who_cannot_go_on_is_told_with_the_cause(companies: Any) -> None:
    company: Company = companies()
    company.hello()
    company.say(W1, control.Failed(cause="no such file", details="Traceback ..."))
    assert company.told("failed") == (W1, "no such file", "Traceback ...")


def test_records_of_the_others_are_handed_on_as_they_were(companies: Any) -> None:
    company: Company = companies()
    company.train()
    lines = ['["ended",1.5,"a"]', '["membership",2,"p","e","","",""]']
    company.say(S0, control.Records(lines="\n".join(lines)))
    company.settled()
    assert company.ears.records[-2:] == [Ended(at=1.5, reason="a"), MemberChange(at=2, party="p", event="e")]


@pytest.mark.parametrize("message", [control.Go(), control.Exit()], ids=["Go", "Exit"])
def test_what_only_the_coordinator_says_is_refused_from_others(companies: Any, message: Any) -> None:
    company: Company = companies()
    company.say(W0, message)
    assert str(take(company.escaped)) == f"worker 0 may not send {type(message).__name__} as CONTROL to coordinator"
