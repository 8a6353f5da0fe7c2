"""What workers tell the coordinator while they train, and when they leave."""

from __future__ import annotations

from typing import Any

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import loop_messages
from paceline.core.coordination.lifecycle import RunPhase, StopRule
from paceline.core.coordination.party import EVALUATOR, Party
from paceline.live.protocol.transport import Kind
from tests.live.fakes import vector
from tests.live.node_fixture import Ask
from tests.live.scripted_parties import S0, W0, W1, Company, progress


def test_the_samples_of_a_run_are_given_to_its_workers_once(companies: Any) -> None:
    """What a worker that leaves has not trained of them is given to another."""
    company: Company = companies(stop_rule=StopRule(samples=100, behind=20))
    company.train()
    assert company.plan.samples == 100
    for who, given in ((W0, 16), (W1, 16), (W1, 8), (W1, 8)):
        company.say(who, control.Ask(samples=64, batch=8))
        assert company.hears(who) == control.Quota(samples=given)
    company.say(W0, progress(10))
    assert company.hears(W0) == company.hears(EVALUATOR) == control.Total(samples=30, exchanges=1)
    company.say(W0, control.Left(reason="steps"))
    company.all_hear(control.WorkerLeft, [S0, EVALUATOR, W1])
    given = []
    while not given or given[-1]:
        company.say(W1, control.Ask(samples=64, batch=8))
        given.append(company.hears(W1).samples)
    assert sum(given) + 16 + 8 + 8 + 10 == 100 - 20


def test_what_a_worker_has_of_the_quotas_is_free_while_it_makes_its_last_exchange(companies: Any) -> None:
    """In that it may wait until the others end, which is when none are left."""
    company: Company = companies(stop_rule=StopRule(samples=100))
    company.train()

    def asks(who: Party, samples: int) -> int:
        company.say(who, control.Ask(samples=samples, batch=8))
        given: int = company.hears(who).samples
        return given

    assert asks(W0, 64) == 24
    company.say(W0, progress(10))
    assert company.hears(W0) == company.hears(EVALUATOR) == control.Total(samples=10, exchanges=1)
    assert asks(W0, 0) == 0
    given = [asks(W1, 64)]
    while given[-1]:
        given.append(asks(W1, 64))
    assert sum(given) == 100 - 10


def test_what_a_worker_has_of_the_queue_is_free_while_it_makes_its_last_exchange(companies: Any) -> None:
    """In that it may wait until the others end, which is when none are left."""
    company: Company = companies()
    company.train()

    def draws(who: Party, wanted: int, trained: int = 0) -> tuple[int, int]:
        company.say(who, loop_messages.Draw(stream=0, samples=16, epochs=1, trained=trained, wanted=wanted, batch=8))
        drawn = company.hears(who)
        return drawn.start, drawn.stop

    assert draws(W0, 8) == (0, 8)
    assert draws(W1, 8) == (8, 16)
    assert draws(W0, 0, trained=4) == (0, 0)
    assert draws(W1, 8) == (4, 8)
    assert draws(W1, 8) == (0, 0)


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


def test_who_cannot_go_on_is_told_with_the_cause(companies: Any) -> None:
    company: Company = companies()
    company.hello()
    company.say(W1, control.Failed(cause="no such file", details="Traceback ..."))
    assert company.told("failed") == (W1, "no such file", "Traceback ...")
