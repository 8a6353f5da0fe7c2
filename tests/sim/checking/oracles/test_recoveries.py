"""When all servers may go back to the snapshot."""

from __future__ import annotations

import pytest

from paceline.sim.checking.oracles.recoveries import RecoveryOracle


def oracle(*lost: int, copied: bool = True, count: int = 4) -> RecoveryOracle:
    watched = RecoveryOracle(AssertionError, count, copied=copied)
    for shard in lost:
        watched.lost(shard)
    return watched


@pytest.mark.parametrize("lost", [(1,), (0, 2), (1, 3)])
def test_servers_whose_keepers_live_are_restored_from_their_copies(lost: tuple[int, ...]) -> None:
    oracle(*lost).back(rolled_back=False)
    with pytest.raises(AssertionError, match=f"though the copy of server {lost[0]}"):
        oracle(*lost).back(rolled_back=True)


@pytest.mark.parametrize("lost", [(1, 2), (3, 0), (0, 1, 2)])
def test_neighbours_that_are_lost_together_send_all_back(lost: tuple[int, ...]) -> None:
    oracle(*lost).back(rolled_back=True)


def test_all_go_back_where_a_copy_is_missing_or_nothing_is_copied() -> None:
    without = oracle(1)
    without.has_no_copy()
    without.back(rolled_back=True)
    oracle(1, copied=False).back(rolled_back=True)


def test_the_next_server_is_asked_for_a_copy_and_no_other() -> None:
    oracle(1).asked_for_copy(1, 2)
    oracle(3).asked_for_copy(3, 0)
    with pytest.raises(AssertionError, match="server 0 is asked for the copy of server 1, which another one keeps"):
        oracle(1).asked_for_copy(1, 0)


def test_a_keeper_that_was_lost_too_is_not_asked() -> None:
    oracle(1).ordered(1, 2)
    oracle(1, 2).ordered(1, None)  # the snapshot
    for lost in ((1, 2), (2, 1)):
        with pytest.raises(AssertionError, match="server 1 is to be restored from server 2, which was lost, too"):
            oracle(*lost).ordered(1, 2)


def test_a_copy_is_of_one_state() -> None:
    oracle().keeps_copy(1, ("weights", "update", "recount 4"))
    with pytest.raises(AssertionError, match="the copy of server 1 has parts of two states: recount 4, recount 5"):
        oracle().keeps_copy(1, ("weights", "update", "recount 4", "recount 5"))


def test_each_recovery_is_looked_at_alone() -> None:
    watched = oracle(1, 2)
    watched.back(rolled_back=True)
    watched.lost(1)
    with pytest.raises(AssertionError, match="though the copy of server 1 was there"):
        watched.back(rolled_back=True)


def test_a_server_that_was_restored_answers_once_it_copies_again() -> None:
    watched, first, second = oracle(), ("server 1", 0), ("server 1", 1)
    watched.copies(first)
    watched.answers(first)
    watched.forgets_copies(first)  # it went back with the others
    with pytest.raises(AssertionError, match="server 1 of incarnation 0 answers, and has not begun to copy"):
        watched.answers(first)
    watched.copies(first)
    watched.answers(first)
    with pytest.raises(AssertionError, match="incarnation 1 answers, and has not begun"):
        watched.answers(second)
    oracle(copied=False).answers(second)
