"""Who is where: the roster, those who come after it, and those who go."""

from __future__ import annotations

from typing import Any

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.coordination.party import COORDINATOR, worker
from paceline.live.control.directory import PartyDirectory


def roster(**changed: Any) -> control.Roster:
    known: dict[str, Any] = {
        "addresses": {"worker 0": "h0:1", "worker 1": "h1:1", "server 0": "h2:1"},
        "hosts": {"worker 0": "h0", "worker 1": "h1"},
    }
    return control.Roster(**known | changed)


def directory(me: int = 1, **changed: Any) -> PartyDirectory:
    of = PartyDirectory(worker(me))
    of.learn(roster(**changed))
    return of


def joined(rank: int, incarnation: int) -> control.WorkerJoined:
    return control.WorkerJoined(rank=rank, address="h9:7", host="h9", incarnation=incarnation, view=2)


def test_a_first_roster_is_of_a_run_that_has_not_begun() -> None:
    of = directory()
    assert not of.late
    assert set(of.parties()) == {worker(0), worker(1), party.server(0)}
    assert of.host_of(worker(0)) == "h0"
    assert of.host_of(party.server(0)) == ""
    assert of.incarnation_of(worker(0)) == of.incarnation_of(COORDINATOR) == 0


def test_workers_and_servers_of_the_same_host_are_counted() -> None:
    hosts = {"worker 0": "h0", "worker 1": "h1", "server 0": "h1", "server 1": "h0", "evaluator": "h1"}
    of = directory(1, hosts=hosts)
    assert of.computing_here() == 2
    of.came(joined(2, 0))
    assert of.computing_here() == 2, "it is elsewhere"


def test_who_comes_late_hears_who_is_gone_but_its_own_earlier_incarnation_is_not() -> None:
    of = directory(me=1, incarnations=(0, 3), gone=(0, 1), lost=(0, 1))
    assert of.late
    assert (of.departed, of.lost_ranks) == ({0}, {0})
    assert of.incarnation_of(worker(1)) == 3


def test_one_that_is_lost_cannot_be_called_until_it_comes_again() -> None:
    of = directory()
    of.gone(0, lost=True)
    assert not of.can_be_called(0)
    of.came(joined(0, incarnation=1))
    assert of.can_be_called(0)
    assert of.departed == set()
    assert (of.addresses["worker 0"], of.incarnation_of(worker(0))) == ("h9:7", 1)


def test_one_that_has_left_in_order_takes_no_part_and_can_be_called() -> None:
    of = directory()
    of.gone(0, lost=False)
    assert of.departed == {0}
    assert of.can_be_called(0)


def test_one_that_joins_at_the_same_time_can_be_called_though_its_earlier_incarnation_is_lost() -> None:
    of = directory(incarnations=(1, 1), gone=(0,), lost=(0,), joining=(0,))
    assert of.can_be_called(0)


def test_a_roster_replaces_what_was_known() -> None:
    of = directory()
    of.gone(0, lost=True)
    of.learn(roster(addresses={"worker 0": "h5:1"}))
    assert (of.addresses, of.departed, of.lost_ranks) == ({"worker 0": "h5:1"}, set(), set())
