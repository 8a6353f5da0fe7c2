"""A run is brought up phase by phase, and whoever does not fit is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.lifecycle import RunPhase
from paceline.core.coordination.party import EVALUATOR, Party, worker
from paceline.core.errors import ConfigError
from paceline.core.sharding import Layout
from tests.live.fakes import Recorder, take
from tests.live.scripted_parties import S0, W0, W1, Company, ready


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


def test_a_worker_that_nobody_waits_for_hears_nothing_before_training_and_joins_then(companies: Any) -> None:
    """It may be started by hand, before `--initial-workers` of the others are ready."""
    company: Company = companies(workers=3, not_started=(2,), allreduce="servers")
    w2 = worker(2)
    heard = company.heard[w2] = Recorder()
    company.hub.transport(w2).open(heard)
    company.say(w2, control.Hello(address="hub:early", pid=2, host="there", device="cpu"))
    company.settled()
    company.train()
    roster = company.hears(w2)
    assert (roster.gone, roster.lost, roster.incarnations) == ((2,), (2,), (0, 0, 0))
    company.say(w2, ready())
    assert isinstance(company.hears(S0), control.WorkerJoined)
