"""Which servers go back, and to what."""

from __future__ import annotations

from paceline.core.fault_tolerance.server_recovery import Replacing


def test_with_copies_a_lost_server_alone_is_made_anew_from_the_next_one() -> None:
    replacing = Replacing(3)
    replacing.lost(2, copied=True)
    replacing.order(1)
    assert replacing.concerned() == [2]
    assert replacing.source(2) == 0
    assert replacing.prepared(2, 1)
    assert replacing.server_view == 0, "nobody has to forget anything"


def test_without_copies_all_go_back_and_that_begins_a_view() -> None:
    replacing = Replacing(3)
    replacing.lost(1, copied=False)
    replacing.order(4)
    assert replacing.concerned() == [0, 1, 2]
    assert [replacing.source(server) for server in range(3)] == [None] * 3
    assert [replacing.prepared(server, 4) for server in (0, 2, 1)] == [False, False, True]
    assert replacing.server_view == 4
    replacing.done()
    assert not replacing.away


def test_neighbours_that_are_lost_together_take_their_copies_along() -> None:
    replacing = Replacing(3)
    replacing.lost(0, copied=True)
    replacing.order(1)
    replacing.lost(1, copied=True)
    replacing.order(2)
    assert replacing.concerned() == [0, 1, 2]


def test_a_server_alone_keeps_no_copy_of_itself() -> None:
    replacing = Replacing(1)
    replacing.lost(0, copied=True)
    assert replacing.rolled_back


def test_no_answer_to_an_earlier_order_counts() -> None:
    replacing = Replacing(3)
    replacing.lost(0, copied=True)
    replacing.order(1)
    replacing.order(2)
    assert not replacing.prepared(0, 1)
    assert not replacing.failed(1)
    assert replacing.failed(2), "and a keeper that has not all of it sends everybody to the snapshot"
    replacing.order(3)
    assert replacing.missing() == [0, 1, 2]
