"""What a party does at once with what it is told of the course of the run, and what it says."""

from __future__ import annotations

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import EVALUATOR, Party, server, worker
from paceline.core.parties.known_workers import KnownWorkers
from paceline.core.parties.lifecycle import (
    AwaitTaken,
    BeginServerView,
    CheckByPlan,
    EndLoop,
    FlushRecords,
    HoldMessages,
    LifecycleAction,
    MayExit,
    OwnThread,
    PartyLifecycle,
    Say,
    SendLast,
    StartClock,
)
from paceline.core.sharding import Layout

FIRST = control.Roster(addresses={}, hosts={})
LATE = control.Roster(addresses={}, hosts={}, incarnations=(0, 1), gone=(1,), lost=(1,), server_view=7)
PLAN = control.Plan(workers=2, servers=1, length=8, layout=Layout((0, 8), (0,)), seconds_per_step=(), optimizer="sgd")


def lifecycle(me: Party, roster: control.Roster | None = None) -> tuple[PartyLifecycle, list[LifecycleAction]]:
    """A party's course, and what followed from its roster."""
    machine = PartyLifecycle(me, KnownWorkers(me))
    return machine, machine.told(roster) if roster else []


@pytest.mark.parametrize("me", [worker(0), server(0), EVALUATOR], ids=str)
def test_the_course_of_a_run_that_it_begins_with(me: Party) -> None:
    machine, learnt = lifecycle(me, FIRST)
    assert learnt == [BeginServerView(0), OwnThread(FIRST)]
    assert machine.told(PLAN) == [CheckByPlan(PLAN, late=False), OwnThread(PLAN)]
    assert machine.told(control.Go()) == [StartClock(control.Go()), OwnThread(control.Go())]
    assert machine.told(control.Finish(holder=0)) == [OwnThread(control.Finish(holder=0))]
    assert machine.told(control.Exit()) == [MayExit()]


def test_a_worker_that_comes_late_holds_messages_before_it_is_in_any_view() -> None:
    machine, learnt = lifecycle(worker(1), LATE)
    assert learnt == [HoldMessages(), BeginServerView(7), OwnThread(LATE)]
    assert machine.told(PLAN)[0] == CheckByPlan(PLAN, late=True)


def test_who_has_no_role_to_wait_for_holds_nothing() -> None:
    assert lifecycle(EVALUATOR, LATE)[1] == [BeginServerView(7), OwnThread(LATE)]


def test_the_plan_holds_before_the_party_takes_it_up_and_the_clock_before_it_begins() -> None:
    machine, _ = lifecycle(worker(0), FIRST)
    for message in (PLAN, control.Go(at=3.0)):
        at_once, later = machine.told(message)
        assert isinstance(at_once, CheckByPlan | StartClock)
        assert later == OwnThread(message)


def test_what_a_party_has_learnt_is_known_before_anything_is_carried_out() -> None:
    me = worker(0)
    known = KnownWorkers(me)
    PartyLifecycle(me, known).told(LATE)
    assert (known.late, known.departed) == (True, {1})


def test_stop_ends_the_loop_and_does_not_wait_for_it() -> None:
    assert lifecycle(worker(0), FIRST)[0].told(control.Stop(reason="seconds")) == [EndLoop("seconds")]


@pytest.mark.parametrize(
    ("me", "roster", "says"),
    [
        (worker(0), FIRST, [Say(control.Prepared())]),
        (server(0), FIRST, [Say(control.Prepared())]),
        (EVALUATOR, FIRST, []),
        (worker(1), LATE, []),
    ],
    ids=["worker", "server", "evaluator", "newcomer"],
)
def test_training_waits_for_who_begins_with_it(me: Party, roster: control.Roster, says: list[Say]) -> None:
    assert lifecycle(me, roster)[0].took_up() == says


def test_a_worker_says_that_it_has_left_when_others_have_all_that_it_told_them() -> None:
    machine, _ = lifecycle(worker(0), FIRST)
    assert machine.leaves() == [SendLast(), AwaitTaken(by_servers=False)]
    assert machine.has_left("epochs") == [FlushRecords(), Say(control.Left(reason="epochs"))]


def test_one_that_is_drained_waits_for_the_servers_too_since_its_process_ends_at_once() -> None:
    machine, _ = lifecycle(worker(0), FIRST)
    assert machine.leaves(drained=True)[-1] == AwaitTaken(by_servers=True)
    assert machine.has_left("SIGTERM", drained=True)[-1] == Say(control.Left(reason="SIGTERM", drained=True))


def test_one_that_may_exit_while_others_train_first_handles_what_they_had_sent_it() -> None:
    machine, _ = lifecycle(worker(0), FIRST)
    assert machine.ends_early() == [AwaitTaken(by_servers=False)]


def test_the_records_of_a_server_are_told_before_anybody_may_end() -> None:
    assert lifecycle(server(0), FIRST)[0].saved() == [FlushRecords(), Say(control.Saved())]
    assert lifecycle(worker(0), FIRST)[0].saved(flushed=True) == [Say(control.Saved())]
