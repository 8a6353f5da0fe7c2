"""What ends a run: its rules, and the last worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.decisions import Decisions
from paceline.core.coordination.ending import RunEnding
from paceline.core.coordination.lifecycle import RunContext, RunPhase, RunState, StopRule
from paceline.core.coordination.party import EVALUATOR, Party
from paceline.core.coordination.roster import ProgressTotals, RunRoster
from paceline.core.coordination.sample_leases import Leasing
from paceline.core.coordination.server_recovery import Recovery
from paceline.core.fault_tolerance.membership import Membership
from paceline.core.trace import Ended, Evaluated
from tests.live.scripted_parties import W0, W1, Company, finish, judged, ready


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


def test_everybody_is_asked_once_for_the_last_model_and_only_saved_is_an_answer(companies: Any) -> None:
    """A newcomer that is lost when all have left is no reason to ask again."""
    company: Company = companies()
    company.train()
    company.coordinator.stop("enough")
    company.all_hear(control.Stop, company.workers)
    company.all_leave("enough")
    company.all_hear(control.Finish)
    company.coordinator.machine.ending.finish()
    company.say(W1, ready())
    company.settled()
    assert all(company.heard[who].delivered.empty() for who in company.everybody)
    assert company.coordinator.missing() == company.everybody


class Servers:
    """They are being replaced, until `restored`."""

    def __init__(self) -> None:
        self.under_way = True
        self._afterwards: list[Callable[[], None]] = []

    def afterwards(self, act: Callable[[], None]) -> None:
        self._afterwards.append(act)

    def restored(self) -> None:
        self.under_way = False
        waiting, self._afterwards = self._afterwards, []
        for act in waiting:
            act()


class Done:
    """So many samples are done."""

    def __init__(self) -> None:
        self.samples = 0

    def reached(self, rule: StopRule) -> bool:
        return self.samples >= (rule.samples or 0)


@pytest.mark.parametrize(("after", "ends"), [(100, True), (90, False)])
def test_samples_end_a_run_only_when_no_server_may_undo_them(after: int, ends: bool) -> None:
    roster = RunRoster(2, 1, False, ())
    state = RunState(RunPhase.TRAINING)
    run = RunContext(state, roster, ProgressTotals(), Membership[Party](), Decisions(), lambda: 5.0)
    servers, done = Servers(), Done()
    ending = RunEnding(run, StopRule(samples=100), cast(Recovery, servers), cast(Leasing, done))
    done.samples = 100
    ending.stop_at_epochs()
    ending.stop_at_epochs()
    assert not state.stopping
    done.samples = after  # what the restored servers know
    servers.restored()
    assert (state.reason, state.stopping) == (("epochs", True) if ends else ("", False))
    done.samples = 100
    ending.stop_at_epochs()
    assert state.reason == "epochs"
