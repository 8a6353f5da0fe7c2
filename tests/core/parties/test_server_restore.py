"""What a server does with orders to restore, action by action."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.parties.orders import RolesHearJoined, RolesHearLeft
from paceline.core.parties.server_restore import (
    BecomeState,
    EnterServerView,
    FetchState,
    ForgetCaptures,
    ForgetCopies,
    ForgetResolved,
    MeetEverybody,
    ReplaceRoles,
    RestoreAction,
    ServerRestore,
    ToCoordinator,
)


def order(number: int = 5, **more: tuple[int, ...]) -> control.Restore:
    return control.Restore(number=number, server_view=number, source="coordinator", **{"departed": (), **more})


def became(
    restoring: ServerRestore, of: control.Restore, departed: tuple[int, ...] = (), done: tuple[()] | None = None
) -> list[RestoreAction]:
    return restoring.became(of, departed, before=9, version=7, done=done)


def prepared(number: int = 5) -> ToCoordinator:
    return ToCoordinator(control.Prepared(number=number, version=7, undone=2))


def test_a_server_becomes_what_the_order_names_and_reports_how_many_updates_are_undone() -> None:
    restoring, first = ServerRestore(later=False), order()
    assert restoring.ordered(first) == [FetchState(first)]
    assert restoring.fetched(first, complete=True) == [BecomeState(first)]
    assert became(restoring, first) == [prepared()]


def test_without_a_complete_copy_it_reports_that_it_failed_and_stays_what_it_is() -> None:
    failed = ToCoordinator(control.Prepared(number=5, failed=True))
    assert ServerRestore(later=True).fetched(order(), complete=False) == [failed]


def test_an_answer_that_a_later_order_has_overtaken_changes_nothing() -> None:
    restoring = ServerRestore(later=True)
    assert restoring.fetched(order(6), complete=True) == [BecomeState(order(6))]
    assert restoring.fetched(order(5), complete=True) == []
    assert restoring.fetched(order(7), complete=True) == [BecomeState(order(7))]


def test_the_first_server_reports_what_is_done_after_what_it_had_resolved_and_before_it_is_prepared() -> None:
    actions = became(ServerRestore(later=False), order(), done=())
    assert actions == [ToCoordinator(control.Restored(done=())), prepared()]


def test_its_role_hears_who_is_gone_and_who_is_in_a_later_incarnation() -> None:
    actions = became(ServerRestore(later=True), order(departed=(3,), returned=(1, 2)), departed=(2,))
    gone = [RolesHearLeft(1), RolesHearLeft(2), RolesHearLeft(3)]
    assert actions == [*gone, RolesHearJoined(1), MeetEverybody(), prepared()]


def test_a_server_is_in_its_new_view_once_nothing_of_the_old_state_is_left() -> None:
    become = BecomeState(order(5))
    view = EnterServerView(become.order.server_view)
    before = (ForgetCaptures(), ForgetResolved())
    assert become.steps == (*before, ReplaceRoles(become.rolled_back), ForgetCopies(), view)


@pytest.mark.parametrize(("source", "rolled_back"), [("coordinator", True), ("server 1", False)])
def test_workers_start_anew_only_where_all_servers_return_to_a_snapshot(source: str, rolled_back: bool) -> None:
    assert BecomeState(replace(order(5), source=source)).rolled_back == rolled_back
