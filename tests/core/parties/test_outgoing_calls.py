"""Which calls of a process are open, fail, or are sent again."""

from __future__ import annotations

import pytest

from paceline.core.coordination.party import server, worker
from paceline.core.errors import ProtocolError, Stopped, Undone
from paceline.core.parties.outgoing_calls import OutgoingCalls

S0, S1, W1 = server(0), server(1), worker(1)


def calls(*, retries: bool = True) -> OutgoingCalls[str]:
    """Three open calls: 1 to server 0, 2 to worker 1, 3 to server 1."""
    of = OutgoingCalls[str](worker(0), retries=retries)
    for who, call in ((S0, "a"), (W1, "b"), (S1, "c")):
        of.open(who, call, 0)
    return of


def test_an_answer_closes_its_call_once() -> None:
    of = calls()
    assert of.find(2) == "b"
    assert of.close(2) == "b"
    assert of.close(2) is None
    assert of.find(2) is None
    assert of.unanswered == ["a", "c"]


def test_an_answer_counts_once_and_a_second_one_is_an_error_unless_it_may_come() -> None:
    of = calls()
    assert of.answered(2, W1) == "b"
    with pytest.raises(ProtocolError, match="worker 1 answered a question that worker 0 did not ask"):
        of.answered(2, W1)
    with pytest.raises(ProtocolError, match="server 0 answered a question that worker 0 did not ask"):
        of.answered(77, S0)
    of.asked_again([S0])
    assert of.answered(2, W1) is None, "since then it could have been repeated"
    assert of.answered(1, S0) == "a"


def test_when_the_run_is_over_no_answer_is_an_error() -> None:
    of = calls()
    of.close_all(Stopped())
    assert of.answered(1, S0) is None
    number = of.open(S0, "e", None)
    assert of.answered(number, S0) == "e"


def test_calls_to_a_worker_that_is_lost_fail_and_late_answers_to_them_are_void() -> None:
    of = calls()
    assert not of.is_void(2)
    assert of.lost(W1) == ["b"]
    assert of.is_void(2)
    assert of.unanswered == ["a", "c"]


def test_calls_to_a_server_stay_open_if_it_will_be_replaced_and_are_sent_again_oldest_first() -> None:
    of = calls()
    number = of.open(S0, "d", 0)
    assert of.lost(S0) == []
    assert of.asked_again([S0]) == [(1, S0, "a"), (number, S0, "d")]
    assert of.close(1) == "a"
    assert of.asked_again([S0, S1]) == [(3, S1, "c"), (number, S0, "d")]
    assert of.is_void(1), "the second answer to it"


def test_a_lost_server_is_away_until_its_calls_are_sent_again_or_void() -> None:
    of = calls()
    assert not of.is_away(S0)
    for restored in (lambda: of.asked_again([S0]), lambda: of.void(1)):
        of.lost(S0)
        of.lost(W1)
        assert of.is_away(S0)
        assert not of.is_away(W1), "nobody takes its place as to this process"
        of.asked_again([S1])
        assert of.is_away(S0)
        restored()
        assert not of.is_away(S0)


def test_calls_to_a_server_fail_if_nobody_replaces_it() -> None:
    assert calls(retries=False).lost(S0) == ["a"]


def test_where_servers_went_back_all_calls_to_them_are_void_and_no_others() -> None:
    of = calls()
    assert of.void(1) == ["a", "c"]
    assert of.unanswered == ["b"]
    assert of.is_void(1)
    assert of.asked_again([S0, S1]) == []


def test_after_the_end_of_the_run_none_is_open_and_later_ones_have_other_numbers() -> None:
    of = calls()
    assert of.close_all(Stopped()) == ["a", "b", "c"]
    assert of.unanswered == []
    assert of.open(S0, "e", None) > 3
    assert of.asked_again([S0]) == [(4, S0, "e")]


def test_a_role_asks_servers_nothing_in_a_view_that_is_over() -> None:
    of = calls()
    of.void(2)
    for view in (0, 1, 3):
        with pytest.raises(Undone, match="a server was replaced"):
            of.open(S0, "late", view)
    of.open(S0, "d", 2)
    of.open(W1, "e", 0)
    of.open(S1, "past the roles", None)
    assert of.unanswered == ["b", "d", "e", "past the roles"]


def test_a_role_asks_nothing_once_the_run_is_over_and_hears_what_has_ended_it_first() -> None:
    of, first = calls(), Stopped("first")
    of.close_all(first)
    of.close_all(Stopped("second"))
    for who in (S0, W1):
        with pytest.raises(Stopped, match="first"):
            of.open(who, "late", 0)
    of.open(S0, "past the roles", None)
    assert of.unanswered == ["past the roles"]
