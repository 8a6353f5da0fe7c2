"""Each change of who takes part has a view of its own; a drained worker exits once, when the others know."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import Party, server, worker
from paceline.sim.checking.oracles.views import Drains, Views

W0, W1, W2, S0 = worker(0), worker(1), worker(2), server(0)
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


def process(who: Party = W0, incarnation: int = 0, *, here: bool = False) -> Any:
    named = {"name": str(who), "process": (str(who), incarnation), "me": who.index, "kind": who.kind, "who": who}
    return SimpleNamespace(**named, incarnation=incarnation, here=here)


OTHERS = [process(W1), process(S0)]
LEFT = control.WorkerLeft(rank=0, view=7)


def drains(*, ends: bool = True) -> Drains:
    return Drains(AssertionError, ends=ends)


def told(of: Drains) -> Drains:
    """The others are told that worker 0 has left, and have heard it."""
    of.sent([W1, S0], LEFT, OTHERS)
    for other in OTHERS:
        of.heard(other, LEFT)
    return of


def test_who_is_drained_exits_when_the_others_are_told_and_they_hear_when_its_process_has_ended() -> None:
    of = drains()
    of.begins(process())
    assert of.began(process())
    told(of).sent([W0], control.Exit(), OTHERS)
    of.exits(process())
    of.sent([W1, S0], control.WorkerLeft(rank=0, lost=True), OTHERS)
    of.ended(process(), [W1])


def test_nobody_may_exit_of_whom_the_others_do_not_know_that_it_has_left_or_believe_that_it_has_ended() -> None:
    of = drains()
    with pytest.raises(AssertionError, match="worker 0 may exit, and the others are not told that it has left"):
        of.sent([W0], control.Exit(), OTHERS)
    told(of).sent([W1, S0], control.WorkerLeft(rank=0, lost=True), OTHERS)
    with pytest.raises(AssertionError, match="worker 0 may exit, and the others are told that its process has ended"):
        of.sent([W0], control.Exit(), OTHERS)


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
        told(drains()).sent([W0], control.Exit(), [process(S0)])
    told(drains(ends=False)).sent([W0], control.Exit(), [])


@pytest.mark.parametrize("late", OTHERS, ids=lambda late: late.name)
def test_nobody_may_exit_before_the_others_have_heard_that_it_has_left(late: Any) -> None:
    of, gone = drains(), process(W2)
    of.sent([W1, W2, S0], LEFT, [*OTHERS, gone])  # worker 2 is lost before it hears that
    for other in OTHERS:
        of.heard(other, control.WorkerLeft(rank=0, lost=True) if other is late else LEFT)
    with pytest.raises(AssertionError, match=f"worker 0 may exit, and {late.name} has not heard yet that it has left"):
        of.sent([W0], control.Exit(), OTHERS)
    of.heard(late, LEFT)
    of.sent([W0], control.Exit(), OTHERS)


def test_a_server_in_the_place_of_a_lost_one_hears_it_before_it_serves_and_may_not_yet() -> None:
    of, again = drains(), process(S0, 1)
    of.sent([W1, S0], LEFT, [OTHERS[0], again])
    of.heard(OTHERS[0], LEFT)
    of.sent([W0], control.Exit(), [OTHERS[0], again])
    of = drains()
    of.heard(again, control.Go(at=0.0, samples=0, steps=0))
    of.sent([W1, S0], LEFT, [OTHERS[0], again])
    of.heard(OTHERS[0], LEFT)
    with pytest.raises(AssertionError, match="server 0 has not heard yet"):
        of.sent([W0], control.Exit(), [OTHERS[0], again])


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
    told(of).sent([W0], control.Exit(), OTHERS)
    of.enters(1)
    with pytest.raises(AssertionError, match="worker 0 was drained, and trains again"):
        of.enters(0)
