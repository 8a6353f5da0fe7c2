"""What a party does with an order, action by action."""

from __future__ import annotations

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import EVALUATOR, Party, server, worker
from paceline.core.parties.known_workers import KnownWorkers
from paceline.core.parties.orders import (
    BeginCopies,
    ConfirmChange,
    OrderAction,
    PartyOrders,
    PassHeld,
    RefuseIncarnation,
    ReleaseBeforeLeave,
    RepeatCalls,
    RepeatRate,
    ReportNotUnderWay,
    ReportPending,
    RolesHearJoined,
    RolesHearLeft,
    VoidCalls,
)

SERVER = server(0)


def orders(me: Party = SERVER) -> PartyOrders:
    return PartyOrders(me, KnownWorkers(me))


def joined(rank: int, view: int = 7) -> control.WorkerJoined:
    return control.WorkerJoined(rank=rank, incarnation=1, view=view, address="", host="")


def test_nothing_of_a_lost_incarnation_reaches_a_role_that_knows_of_the_loss() -> None:
    lost = control.WorkerLeft(rank=2, lost=True, incarnation=3)
    assert orders().told(lost) == [RefuseIncarnation(2, 3), RolesHearLeft(2)]


def test_a_newcomer_that_is_lost_is_refused_and_no_role_hears_of_it() -> None:
    assert orders(worker(0)).told(control.NewcomerLost(rank=2, incarnation=3)) == [RefuseIncarnation(2, 3)]


def test_who_left_cleanly_is_heard_to_the_end() -> None:
    left = control.WorkerLeft(rank=2, incarnation=3)
    assert orders().told(left) == [ReleaseBeforeLeave(2, 3), RolesHearLeft(2)]


def test_a_leave_that_somebody_waits_for_is_confirmed_when_the_roles_know_it() -> None:
    drained = control.WorkerLeft(rank=2, view=8)
    assert orders().told(drained) == [ReleaseBeforeLeave(2, 0), RolesHearLeft(2), ConfirmChange(8)]


def test_roles_hear_once_of_a_worker_that_leaves_and_whose_process_ends() -> None:
    told = orders()
    told.told(control.WorkerLeft(rank=2, incarnation=3))
    ended = [ReleaseBeforeLeave(2, 3), RefuseIncarnation(2, 3)]  # a newcomer may hold a share that it handed over late
    assert told.told(control.WorkerLeft(rank=2, lost=True, incarnation=3)) == ended


def test_a_newcomer_is_confirmed_after_the_roles_know_it() -> None:
    assert orders().told(joined(1)) == [RolesHearJoined(1), ConfirmChange(7)]


def test_what_is_resolved_is_reported_before_what_is_pending() -> None:
    assert orders().told(control.Fence(rank=1, incarnation=2)) == [ReportPending(1, 2)]


FROM_A_COPY = control.Resume(server_view=4, rolled_back=False, replaced=(1,))
ALL_WENT_BACK = control.Resume(server_view=4, rolled_back=True, replaced=(1,))


@pytest.mark.parametrize(
    ("me", "resume", "actions"),
    [
        (server(0), FROM_A_COPY, [BeginCopies((1,))]),
        (server(0), ALL_WENT_BACK, [BeginCopies((1,))]),
        (worker(0), FROM_A_COPY, [RepeatRate(), RepeatCalls((1,))]),
        (worker(0), ALL_WENT_BACK, [RepeatRate(), VoidCalls(4, True, (1,))]),
        (EVALUATOR, FROM_A_COPY, [RepeatRate(), VoidCalls(4, False, (1,))]),
    ],
)
def test_only_a_worker_whose_servers_have_all_it_was_answered_repeats_its_calls(
    me: Party, resume: control.Resume, actions: list[OrderAction]
) -> None:
    assert orders(me).told(resume) == actions


def test_only_where_the_first_server_was_replaced_a_worker_says_which_samples_are_not_under_way() -> None:
    """Any other one leaves the first server in place, which has resolved samples that it has not reported yet."""
    resume = control.Resume(server_view=0, rolled_back=False, replaced=(0, 2))
    assert orders(worker(1)).told(resume) == [RepeatRate(), ReportNotUnderWay(), RepeatCalls((0, 2))]


def test_the_role_of_a_newcomer_hears_what_its_process_has_heard_since_the_roster() -> None:
    known = KnownWorkers(worker(3))
    orders = PartyOrders(worker(3), known)
    known.learn(control.Roster(addresses={}, hosts={}, gone=(1, 3), incarnations=(0, 0, 0, 1, 0, 0)))
    for order in (joined(4), joined(5), control.WorkerLeft(rank=4), control.WorkerLeft(rank=0, lost=True)):
        orders.told(order)
    assert orders.enter() == [
        RolesHearJoined(4),
        PassHeld(of_leavers=True),
        RolesHearLeft(0),
        RolesHearLeft(1),
        RolesHearLeft(4),
        RolesHearJoined(5),
        PassHeld(of_leavers=False),
    ]
