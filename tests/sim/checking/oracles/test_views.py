"""Each change of who takes part has a view of its own; a drained worker exits once, when the others know."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import server, worker
from paceline.sim.checking.oracles.views import Drains, Views

W0, W1, S0 = worker(0), worker(1), server(0)
PARTY: Any = SimpleNamespace(name="server 0", process=("server 0", 0))


def joins(rank: int, view: int) -> control.WorkerJoined:
    return control.WorkerJoined(rank=rank, incarnation=1, view=view, address="", host="")


def left(rank: int) -> control.WorkerLeft:
    return control.WorkerLeft(rank=rank, lost=True, incarnation=0)


def test_changes_that_each_have_a_view_pass_and_so_do_views_that_a_party_did_not_hear_of() -> None:
    views = Views(AssertionError)
    for message in (left(1), joins(1, 7), left(2), left(1), joins(2, 10), control.Stop(reason=""), joins(1, 15)):
        views.told(PARTY, message)


@pytest.mark.parametrize(("gone", "view"), [(0, 7), (1, 8), (2, 9)])
def test_a_change_without_a_view_of_its_own_is_found(gone: int, view: int) -> None:
    views = Views(AssertionError)
    views.told(PARTY, joins(1, 7))
    for rank in range(gone):
        views.told(PARTY, left(rank))
    with pytest.raises(AssertionError, match=f"joins in view {view}; {gone} are gone since another joined in view 7"):
        views.told(PARTY, joins(2, view))


def test_that_the_process_of_one_that_left_has_ended_is_no_change() -> None:
    views = Views(AssertionError)
    ended = [control.WorkerLeft(rank=1), left(1)]
    for message in (joins(2, 7), *ended, joins(1, 9), *ended, joins(2, 11)):
        views.told(PARTY, message)
    views.told(PARTY, left(3))
    with pytest.raises(AssertionError, match="joins in view 12; 1 are gone since another joined in view 11"):
        views.told(PARTY, joins(3, 12))


def test_a_newcomer_hears_of_such_an_end_alone_since_the_roster_said_that_it_had_left() -> None:
    views = Views(AssertionError)
    roster = control.Roster(addresses={}, hosts={}, gone=(1,))
    for message in (roster, joins(2, 7), left(1), joins(3, 8), joins(1, 9), left(1)):
        views.told(PARTY, message)
    with pytest.raises(AssertionError, match="joins in view 10; 1 are gone since another joined in view 9"):
        views.told(PARTY, joins(4, 10))


def process(*, here: bool = False) -> Any:
    return SimpleNamespace(name="worker 0", process=("worker 0", 0), me=0, here=here)


def drains(*, ends: bool = True) -> Drains:
    return Drains(AssertionError, ends=ends)


def told(of: Drains) -> Drains:
    """The others are told that worker 0 has left."""
    of.sent([W1, S0], control.WorkerLeft(rank=0), [W1])
    return of


def test_who_is_drained_exits_when_the_others_are_told_and_they_hear_when_its_process_has_ended() -> None:
    of = drains()
    of.begins(process())
    assert of.began(process())
    told(of).sent([W0], control.Exit(), [W1])
    of.exits(process())
    of.sent([W1, S0], control.WorkerLeft(rank=0, lost=True), [W1])
    of.ended(process(), [W1])


def test_nobody_may_exit_of_whom_the_others_do_not_know_that_it_has_left_or_believe_that_it_has_ended() -> None:
    of = drains()
    with pytest.raises(AssertionError, match="worker 0 may exit, and the others are not told that it has left"):
        of.sent([W0], control.Exit(), [W1])
    told(of).sent([W1, S0], control.WorkerLeft(rank=0, lost=True), [W1])
    with pytest.raises(AssertionError, match="worker 0 may exit, and the others are told that its process has ended"):
        of.sent([W0], control.Exit(), [W1])


def test_others_that_know_only_that_it_has_left_would_ask_a_process_that_has_ended() -> None:
    of = told(drains())
    of.begins(process())
    with pytest.raises(AssertionError, match="worker 0 has ended, and may not exit yet"):
        of.ended(process(), [W1])
    of.exits(process())
    with pytest.raises(AssertionError, match="worker 0 was drained, and the others are not told that its process has"):
        of.ended(process(), [W1])
    of.ended(process(), [])


def test_the_last_one_stays_where_the_run_needs_it() -> None:
    with pytest.raises(AssertionError, match="worker 0 may exit, and nobody else trains"):
        told(drains()).sent([W0], control.Exit(), [])
    told(drains(ends=False)).sent([W0], control.Exit(), [])


def test_only_who_is_drained_exits_early_and_once() -> None:
    of = drains()
    with pytest.raises(AssertionError, match="is not drained"):
        of.exits(process())
    of.begins(process())
    with pytest.raises(AssertionError, match="still trains"):
        of.exits(process(here=True))
    of.exits(process())
    with pytest.raises(AssertionError, match="may exit twice"):
        of.exits(process())


def test_it_does_not_come_back_and_others_do() -> None:
    of = told(drains())
    of.enters(0)  # it was lost, and has come back
    told(of).sent([W0], control.Exit(), [W1])
    of.enters(1)
    with pytest.raises(AssertionError, match="worker 0 was drained, and trains again"):
        of.enters(0)
