"""Who takes part, as one process was told."""

from __future__ import annotations

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import server, worker
from paceline.core.parties.known_workers import KnownWorkers


def roster(**told: object) -> control.Roster:
    return control.Roster(**{"addresses": {}, "hosts": {}, **told})


def came(rank: int) -> control.WorkerJoined:
    return control.WorkerJoined(rank=rank, incarnation=2, view=5, address="", host="")


def test_the_roster_replaces_what_was_known_and_an_earlier_incarnation_of_oneself_is_not_gone() -> None:
    for me, departed, lost in ((worker(1), {2}, set()), (server(1), {1, 2}, {1})):
        known = KnownWorkers(me)
        known.gone(3, lost=True)
        known.learn(roster(gone=(1, 2), lost=(1,), incarnations=(0, 1, 0, 0), joining=(2,)))
        assert (known.departed, known.lost_ranks, known.joining) == (departed, lost, (2,))
        assert known.late


def test_who_left_cleanly_can_still_be_asked_and_who_is_back_is_there_again() -> None:
    known = KnownWorkers(worker(0))
    known.gone(1, lost=False)
    known.gone(2, lost=True)
    assert (known.departed, known.lost_ranks) == ({1, 2}, {2})
    known.came(came(2))
    assert (known.departed, known.lost_ranks, known.incarnations[2]) == ({1}, set(), 2)


def test_only_a_newcomer_without_a_role_keeps_who_joined_meanwhile() -> None:
    from_the_beginning, late = KnownWorkers(worker(0)), KnownWorkers(worker(1))
    late.learn(roster(incarnations=(0, 1)))
    for known in (from_the_beginning, late):
        known.came(came(2))
    late.entered()
    late.came(came(3))
    assert (from_the_beginning.joined, late.joined) == (set(), {2})
