"""The coordinator's machine, without a transport: what follows from an input is a value."""

from __future__ import annotations

import math
from typing import Any

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import loop_messages
from paceline.core.coordination.decisions import (
    Action,
    FailureKind,
    RunFailure,
    RunFinished,
    SendMessage,
    StartTraining,
    Timer,
    WriteRecord,
)
from paceline.core.coordination.lifecycle import RunPhase, RunRules, RunSize, StopRule
from paceline.core.coordination.party import EVALUATOR, Party, server, worker
from paceline.core.coordinator.bring_up import PlanRequest
from paceline.core.coordinator.machine import SAME_FAILURE_S, CoordinatorMachine
from paceline.core.errors import ProtocolError
from paceline.core.role import Role, RoleContext
from paceline.core.sharding import Layout
from paceline.core.trace import Decided, MemberChange

W0, W1, W2, S0 = worker(0), worker(1), worker(2), server(0)
READY = control.Ready(length=8, fingerprint="f", seconds_per_step=0.1, optimizer="sgd")


class Planner:
    """Plans a run of which every worker but one may be lost."""

    def plan(self, request: PlanRequest) -> control.Plan:
        workers = len(request.workers) + request.not_started
        return control.Plan(
            workers=workers, servers=1, length=8, layout=Layout((0, 8), (0,)), seconds_per_step=(), optimizer="sgd"
        )

    def role(self, plan: control.Plan) -> Role:
        return Role(None, RoleContext(me=0, workers=(0, 1), w=None, update=lambda w, g, samples: w))


class Strikes:
    """Notes strikes; who has one is refused."""

    def __init__(self) -> None:
        self.given: list[tuple[Party, str, bool]] = []

    def strike(self, who: Party, why: str, *, at_once: bool = False) -> None:
        self.given.append((who, why, at_once))

    def refused(self, who: Party) -> bool:
        return any(who == other for other, _, _ in self.given)


class Driver:
    """Hands inputs in and takes decisions out, as a driver does, and carries nothing out."""

    def __init__(self, workers: int = 2, not_started: tuple[int, ...] = (), **rules: Any) -> None:
        self.now, self.strikes = 0.0, Strikes()
        size = RunSize(workers, 1, evaluator=True, not_started=not_started)
        self.machine = CoordinatorMachine(size, RunRules(**rules), Planner(), self.strikes, None, lambda: self.now)

    def taken(self) -> list[Action]:
        actions: list[Action] = []
        while decision := self.machine.decide.take():
            actions += decision.actions
            if any(isinstance(action, StartTraining) for action in decision.actions):
                self.machine.begin_training()
        return actions

    def told(self, who: Party, message: Any) -> list[Action]:
        self.machine.told(who, message)
        return self.taken()

    def trains(self) -> Driver:
        for who in (*self.machine.run.roster.beginning, S0, EVALUATOR):
            self.told(who, hello())
        for who in self.machine.run.roster.beginning:
            self.told(who, READY)
        for who in (S0, *self.machine.run.roster.beginning):
            self.told(who, control.Prepared())
        assert self.machine.phase is RunPhase.TRAINING
        return self


def hello(incarnation: int = 0) -> control.Hello:
    return control.Hello(address="a", pid=1, host="h", device="cpu", incarnation=incarnation)


def sent(actions: list[Action], kind: type) -> list[tuple[Party, ...]]:
    return [action.to for action in actions if isinstance(action, SendMessage) and isinstance(action.message, kind)]


def changes(actions: list[Action]) -> list[tuple[str, str]]:
    records = [action.record for action in actions if isinstance(action, WriteRecord)]
    return [(record.party, record.event) for record in records if isinstance(record, MemberChange)]


def test_a_run_goes_from_hello_to_exit_by_messages_alone() -> None:
    driver = Driver().trains()
    driver.told(W0, control.Left(reason="epochs"))
    actions = driver.told(W1, control.Left(reason="epochs"))
    assert sent(actions, control.Finish) == [(S0, W0, W1, EVALUATOR)]
    for who in (S0, W0, W1):
        assert driver.told(who, control.Saved()) == []
    actions = driver.told(EVALUATOR, control.Saved())
    assert sent(actions, control.Exit) == [(S0, W0, W1, EVALUATOR)]
    assert any(isinstance(action, RunFinished) and action.reason == "epochs" for action in actions)
    assert driver.machine.phase is RunPhase.OVER


def test_whoever_is_lost_before_training_ends_the_run() -> None:
    for lost in (W1, S0, EVALUATOR):
        driver = Driver()
        for who in (W0, W1, S0, EVALUATOR):
            driver.told(who, hello())
        driver.machine.lost(lost, "it was killed")
        (failure,) = driver.taken()
        assert isinstance(failure, RunFailure)
        assert (failure.who, failure.kind) == (lost, FailureKind.WAS_LOST)


def test_a_worker_that_is_lost_while_others_train_is_told_to_them() -> None:
    driver = Driver(workers=3).trains()
    driver.machine.lost(W1, "it was killed")
    actions = driver.taken()
    assert sent(actions, control.WorkerLeft) == [(S0, EVALUATOR, W0, W2)]
    assert changes(actions) == [("worker 1", "lost")]


def test_who_asks_for_a_quota_that_cannot_be_is_answered_and_refused() -> None:
    driver = Driver().trains()
    actions = driver.told(W1, control.Ask(samples=8, batch=0))
    assert sent(actions, control.Quota) == [(W1,)]
    ((who, why, at_once),) = driver.strikes.given
    assert (who, at_once) == (W1, True)
    assert "mini-batches of 0" in why


def test_data_of_another_length_than_most_have_expels_whichever_reports_it() -> None:
    driver = Driver(workers=3, stop=StopRule(epochs=1.0)).trains()
    for who, epoch in ((W2, 9), (W0, 8), (W1, 8)):
        assert sent(driver.told(who, control.Ask(samples=4, batch=4, epoch=epoch)), control.Quota) == [(who,)]
    assert driver.strikes.given == [(W2, "worker 2 counts epochs of 9 samples, others of 8", True)]


def test_a_run_ends_with_its_last_worker_unless_it_may_be_without_any() -> None:
    alone = Driver(workers=1).trains()
    assert sent(alone.told(W0, control.Left(reason="steps")), control.Finish)
    goes_on = Driver(workers=1, min_workers=0).trains()
    actions = goes_on.told(W0, control.Left(reason="steps"))
    assert changes(actions) == [("worker 0", "left")]
    assert not sent(actions, control.Finish)
    assert goes_on.machine.phase is RunPhase.TRAINING


def test_timers_go_to_whoever_started_them() -> None:
    driver = Driver(stop=StopRule(seconds=3.0), dead_after_s=5.0).trains()
    driver.now = 3.0
    driver.machine.rang(Timer.TIME_LIMIT, 0)
    assert sent(driver.taken(), control.Stop) == [(W0, W1)]
    silent = Driver(workers=3, dead_after_s=5.0).trains()
    for half in range(1, 15):
        silent.now = half / 2
        for who in (W0, W2, S0, EVALUATOR):
            silent.machine.heard(who, silent.now)
        silent.machine.rang(Timer.MEMBERS, 0)
        silent.machine.rang(Timer.EVALUATOR, 0)
    assert changes(silent.taken()) == [("worker 1", "lost")]


def test_a_server_that_is_heard_is_never_stuck() -> None:
    driver = Driver(stuck_after_s=2.0, dead_after_s=5.0).trains()
    for second in range(1, 20):
        driver.now = float(second)
        for who in (W0, W1):
            driver.machine.run.members.progressed(driver.now, who, second, waits=False)
        driver.machine.heard(S0, driver.now)
        driver.machine.rang(Timer.MEMBERS, 0)
    assert not changes(driver.taken())
    assert math.isinf(driver.machine.run.members.patience.join_s) is False


def test_what_no_party_may_say_is_refused_and_expels_a_worker_only_while_it_trains() -> None:
    driver = Driver()
    with pytest.raises(ProtocolError, match="worker 0 sent Fence"):
        driver.machine.told(W0, control.Fence(rank=0, incarnation=0))
    assert not driver.machine.expelled_for(W0, ProtocolError("a lie"))
    driver.trains()
    assert not driver.machine.expelled_for(S0, ProtocolError("a lie"))
    assert driver.machine.expelled_for(W0, ProtocolError("a lie"))
    driver.machine.told(W1, control.Fence(rank=0, incarnation=0))
    assert driver.strikes.given == [(W0, "a lie", True), (W1, "worker 1 sent Fence", True)]
    with pytest.raises(ProtocolError, match="server 0 sent Stop"):
        driver.machine.told(S0, control.Stop(reason="mine"))


def failed(cause: str) -> control.Failed:
    return control.Failed(cause=cause, details="")


def test_an_error_that_one_worker_has_is_its_loss_and_one_that_most_have_fails_the_run() -> None:
    driver = Driver(workers=5).trains()
    for who, cause in ((W0, "MemoryError: 512 bytes"), (W1, "KeyError: 'x'"), (W2, "MemoryError: 8 bytes at 0x8f")):
        assert changes(driver.told(who, failed(f"{who}: {cause}"))) == [(str(who), "lost")]
    (failure,) = driver.told(worker(3), failed("worker 3: MemoryError: 64 bytes"))
    assert isinstance(failure, RunFailure)
    assert (failure.who, failure.kind) == (worker(3), FailureKind.ERROR)


def test_errors_that_are_the_same_but_far_apart_are_losses() -> None:
    driver = Driver(workers=3).trains()
    assert changes(driver.told(W0, failed("worker 0: no memory"))) == [("worker 0", "lost")]
    driver.now = SAME_FAILURE_S + 1
    assert changes(driver.told(W1, failed("worker 1: no memory"))) == [("worker 1", "lost")]


def test_two_of_three_that_fail_in_the_same_way_fail_the_run() -> None:
    driver = Driver(workers=3).trains()
    driver.told(W2, failed("worker 2: no such name"))
    (failure,) = driver.told(W0, failed("worker 0: no such name"))
    assert isinstance(failure, RunFailure)


def test_an_error_of_a_worker_whose_claims_were_refused_ends_only_its_own_part() -> None:
    driver = Driver(workers=3).trains()
    driver.told(W0, failed("worker 0: a bug"))
    driver.strikes.strike(W1, "a lie")
    assert changes(driver.told(W1, failed("worker 1: a bug"))) == [("worker 1", "lost")]


def test_a_loop_ends_the_run_where_it_decides_or_most_loops_ask() -> None:
    end = loop_messages.EndRun(reason="enough")
    driver = Driver(workers=5).trains()
    assert sent(driver.told(W1, end), control.Stop) == []
    assert sent(driver.told(W1, end), control.Stop) == [], "asking twice is asking once"
    driver.told(W1, control.Left(reason="enough"))
    assert sent(driver.told(W2, end), control.Stop) == []
    assert sent(driver.told(worker(3), end), control.Stop) != []

    driver = Driver(workers=3).trains()
    assert sent(driver.told(W0, end), control.Stop) == [(W0, W1, W2)]

    driver = Driver(workers=3).trains()
    driver.machine.lost(W0, "it was killed")
    driver.taken()
    assert sent(driver.told(W1, end), control.Stop) == [(W1, W2)], "the lowest rank that is there decides"


def test_a_loop_that_reports_the_target_ends_the_run_on_the_same_condition() -> None:
    driver = Driver(workers=3, stop=StopRule(target_accuracy=0.9)).trains()
    reached = loop_messages.Reported(accuracy=1.0, loss=0.0)
    assert sent(driver.told(W2, reached), control.Stop) == []
    assert sent(driver.told(W0, reached), control.Stop) == [(W0, W1, W2)]


@pytest.mark.parametrize(
    "message", [loop_messages.EndRun(reason="mine"), loop_messages.Reported(accuracy=1.0, loss=0.0)]
)
def test_where_no_script_runs_a_worker_may_not_send_what_scripts_send(message: Any) -> None:
    driver = Driver(workers=3, own_loops=False).trains()
    driver.told(W0, message)
    assert driver.strikes.given == [(W0, f"worker 0 sent {type(message).__name__}, which is for scripts", True)]
    assert not driver.machine.stopping


def test_a_connection_that_broke_the_protocol_is_a_strike_while_workers_train() -> None:
    driver = Driver(workers=3).trains()
    driver.machine.lost(W2, "no such frame", broke_protocol=True)
    assert driver.strikes.given == [(W2, "no such frame", True)]
    assert changes(driver.taken()) == [("worker 2", "lost")]


@pytest.mark.parametrize("phases", [0, 1, 2])
def test_a_worker_that_nobody_waits_for_may_come_while_a_run_is_brought_up(phases: int) -> None:
    """It hears nothing before training has begun, and joins then, as one that was lost does."""
    driver = Driver(workers=3, not_started=(2,))
    told: list[Action] = []
    for phase, act in enumerate((lambda who: driver.told(who, hello()), lambda who: driver.told(who, READY))):
        if phase == phases:
            told += driver.told(W2, hello())
        for who in (W0, W1, *((S0, EVALUATOR) if phase == 0 else ())):
            told += act(who)
    if phases == 2:
        told += driver.told(W2, hello())
    for who in (S0, W0, W1):
        told += driver.told(who, control.Prepared())
    assert driver.machine.phase is RunPhase.TRAINING
    messages = [action.message for action in told if isinstance(action, SendMessage) and W2 in action.to]
    assert [type(message) for message in messages] == [control.Roster]
    assert (messages[0].incarnations, messages[0].joining) == ((0, 0, 0), (2,))
    assert sent(driver.told(W2, READY), control.WorkerJoined) == [(S0, EVALUATOR, W0, W1)]


def test_one_that_came_and_went_before_training_is_not_waited_for() -> None:
    driver = Driver(workers=3, not_started=(2,))
    driver.told(W2, hello())
    driver.machine.lost(W2, "it was killed")
    assert driver.taken() == []
    driver.trains()
    assert W2 not in driver.machine.run.roster.joining


def test_only_the_present_incarnation_of_a_party_counts_the_evaluators_too() -> None:
    driver = Driver(workers=3).trains()
    for who in (W0, S0, EVALUATOR):
        assert driver.machine.hears(who, 0)
        assert not driver.machine.hears(who, 1)
    for who in (W0, EVALUATOR):
        driver.machine.lost(who, "it was killed")
        assert not driver.machine.hears(who, 0)
    driver.told(EVALUATOR, hello(incarnation=1))
    assert driver.machine.hears(EVALUATOR, 1)


def test_of_two_newcomers_one_freezes_and_the_one_that_calls_it_is_told_and_joins() -> None:
    """Worker 2 came later, so it calls worker 1. Nobody else has heard of worker 1's second incarnation."""
    driver = Driver(workers=3, dead_after_s=5.0).trains()
    for who in (W1, W2):
        driver.machine.lost(who, "it was killed")
        driver.told(who, hello(incarnation=1))
    told: list[Action] = []
    for second in range(1, 10):
        driver.now = float(second)
        for who in (W0, W2, S0, EVALUATOR):
            driver.machine.heard(who, driver.now)
        driver.machine.rang(Timer.MEMBERS, 0)
        told += driver.taken()
    news = [
        (a.to, a.message) for a in told if isinstance(a, SendMessage) and isinstance(a.message, control.NewcomerLost)
    ]
    assert news == [((W2,), control.NewcomerLost(rank=1, incarnation=1))]
    assert sent(told, control.WorkerLeft) == []
    assert changes(told) == [("worker 1", "lost")]
    assert sent(driver.told(W2, READY), control.WorkerJoined) == [(S0, EVALUATOR, W0)]


def test_what_a_loop_shares_goes_to_all_workers_that_are_here_and_to_those_that_come() -> None:
    driver = Driver(workers=3).trains()
    shared = loop_messages.ShareValue(name="best", value="0.5")
    assert sent(driver.told(W1, shared), loop_messages.SharedValue) == [(W0, W2), (W1,)]
    driver.told(W2, control.Left(reason="steps"))
    driver.machine.lost(W1, "it was killed")
    driver.taken()
    later = loop_messages.ShareValue(name="best", value="0.25")
    assert sent(driver.told(W0, later), loop_messages.SharedValue) == [(W2,), (W0,)]
    driver.told(W1, hello(incarnation=1))
    actions = driver.told(W1, READY)
    (view,) = [a.message.view for a in actions if isinstance(a, SendMessage) and hasattr(a.message, "view")]
    for who in (W0, S0, EVALUATOR):
        actions += driver.told(who, control.Aware(view=view))
    messages = [a.message for a in actions if isinstance(a, SendMessage) and a.to == (W1,)]
    assert messages[-1] == loop_messages.SharedValue(name="best", value="0.25")


def test_the_evaluator_is_told_what_workers_that_are_gone_have_trained_of_shares_also_a_later_one() -> None:
    driver = Driver().trains()
    for rank, who in enumerate((W0, W1)):
        driver.told(who, loop_messages.ShareTrained(stream=0, sizes=(8, 8), own=4 * rank))
    driver.machine.lost(W1, "it was killed")
    assert sent(driver.taken(), loop_messages.SharesLeft) == [(EVALUATOR,)]
    driver.machine.lost(EVALUATOR, "it was killed")
    again = driver.told(EVALUATOR, hello(1))
    (left,) = [a.message for a in again if isinstance(a, SendMessage) and type(a.message) is loop_messages.SharesLeft]
    assert left == loop_messages.SharesLeft(free=((1, 8),), trained=((1, 0, 4),))


def test_a_run_whose_last_worker_is_lost_ends_where_the_others_had_no_samples_left() -> None:
    driver = Driver().trains()
    for who in (W0, W1):
        driver.told(who, loop_messages.Draw(stream=0, samples=8, epochs=1, wanted=4, batch=4, trained=0))
    driver.told(W0, loop_messages.Draw(stream=0, samples=8, epochs=1, wanted=0, batch=1, trained=4))
    driver.told(W0, control.Left(reason="every worker was done"))
    assert driver.machine.survives(W1)
    driver.machine.lost(W1, "it was killed")
    actions = driver.taken()
    assert sent(actions, control.Finish) == [(S0, W0, W1, EVALUATOR)]
    records = [action.record for action in actions if isinstance(action, WriteRecord)]
    untrained = [record.reason for record in records if isinstance(record, Decided)]
    assert untrained == ["4 samples were trained by nobody: no worker was there any more"]
    assert driver.machine.phase is RunPhase.FINISHING
    assert not [action for action in actions if isinstance(action, RunFailure)]


def test_a_run_whose_last_worker_is_lost_fails_where_others_left_for_another_reason() -> None:
    driver = Driver().trains()
    driver.told(W0, control.Left(reason="SIGTERM", drained=True))
    assert not driver.machine.survives(W1)
