"""What the coordinator decides comes out as one value, and is carried out in that order."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.decisions import (
    CloseConnection,
    Decisions,
    FailCallsTo,
    NotifyWorkerLeft,
    RunFailure,
    SendMessage,
    StartTimer,
    Timer,
    WriteRecord,
)
from paceline.core.coordination.elasticity import Elasticity
from paceline.core.coordination.ending import RunEnding
from paceline.core.coordination.lifecycle import RunContext, RunPhase, RunState, StopRule
from paceline.core.coordination.party import Party, server, worker
from paceline.core.coordination.roster import ProgressTotals, RunRoster
from paceline.core.coordination.sample_leases import Leasing, Quotas
from paceline.core.coordination.server_recovery import Recovery
from paceline.core.fault_tolerance.membership import Membership, Patience
from paceline.core.sharding import lay_out
from paceline.core.trace import Ended, MemberChange
from tests.live.node_fixture import nothing
from tests.live.scripted_parties import ready

W0, W1, W2, S0 = worker(0), worker(1), worker(2), server(0)


class Training:
    """The parts that decide while three workers and a server train: without a transport, a node or a clock."""

    def __init__(self, min_workers: int = 1) -> None:
        self.now, self.decide = 0.0, Decisions()
        members = Membership[Party](Patience(dead_s=2.0))
        state = RunState(RunPhase.TRAINING, model=ready(), agreed=plan())
        roster = RunRoster(3, 1, False, ())
        self.run = RunContext(state, roster, ProgressTotals(), members, self.decide, lambda: self.now)
        leasing = Leasing(self.decide.send, self.decide.record, self.run.now, (), nothing, roster.ranks)
        recovery = Recovery(self.run, None)
        self.ending = RunEnding(self.run, StopRule(target_accuracy=0.9), recovery, leasing)
        quotas = Quotas(StopRule(), self.run.totals, roster.ranks)
        self.elasticity = Elasticity(self.run, recovery, self.ending, leasing, quotas, min_workers)
        self.elasticity.begin()

    def decided(self) -> tuple[Any, ...]:
        decision = self.decide.take()
        return decision.actions if decision else ()


def plan() -> control.Plan:
    return control.Plan(workers=3, servers=1, length=4, layout=lay_out(4, 1), seconds_per_step=(), optimizer="")


def test_the_beginning_of_training_starts_the_watch_over_its_members() -> None:
    assert Training().decided() == (StartTimer(0.25, Timer.MEMBERS),)


def test_a_lost_worker_is_recorded_then_told_to_the_others_and_only_then_to_the_role() -> None:
    training = Training()
    training.decided()
    training.elasticity.lost(W1, "its connection was reset")
    reason = "its connection was reset; 2 of 3 continue"
    gone = control.WorkerLeft(rank=1, lost=True, incarnation=0)
    assert training.decided() == (
        WriteRecord(MemberChange(at=0.0, party="worker 1", event="lost", reason=reason)),
        FailCallsTo(W1, "its connection was reset"),
        SendMessage((S0, W0, W2), gone),
        NotifyWorkerLeft(1),
        CloseConnection(W1, 0, "its connection was reset"),
    )


def test_a_worker_that_the_run_needs_is_a_failure_and_nothing_else() -> None:
    training = Training(min_workers=3)
    training.decided()
    training.elasticity.lost(W2, "killed")
    (failure,) = training.decided()
    assert isinstance(failure, RunFailure)
    assert (failure.who, failure.cause) == (W2, "lost worker 2: killed; fewer than --min-workers 3 would be left")


def test_workers_are_told_to_stop_once() -> None:
    training = Training()
    training.decided()
    training.ending.stop("seconds")
    stop = SendMessage((W0, W1, W2), control.Stop(reason="seconds"))
    assert training.decided() == (WriteRecord(Ended(at=0.0, reason="seconds")), stop)
    training.ending.stop("samples")
    assert training.decided() == ()


@pytest.mark.parametrize("by_evaluation", [True, False])
def test_that_the_target_was_reached_is_no_matter_of_the_text(by_evaluation: bool) -> None:
    training = Training()
    training.run.state.holder = W0
    if by_evaluation:
        training.ending.evaluated(control.EvaluationReport(at=1.0, samples=8, accuracy=0.95, loss=0.1, seconds=0.1))
    else:
        training.ending.stop("target accuracy")  # a script may give any reason
    order = training.ending.finish_order()
    assert (order.reason, order.target_reached) == ("target accuracy", by_evaluation)


def test_a_decision_says_what_to_send_to_record_and_to_start() -> None:
    decide = Decisions()
    assert decide.take() is None
    ended = Ended(at=1.0, reason="r")
    decide.send([W0], control.Exit())
    decide.record(ended)
    decide.start_timer(2.0, Timer.SERVERS_BACK, 7)
    decision = decide.take()
    assert decision is not None
    assert decision.messages == [SendMessage((W0,), control.Exit())]
    assert decision.records == [ended]
    assert decision.timers == [StartTimer(2.0, Timer.SERVERS_BACK, 7)]
    assert decide.take() is None
