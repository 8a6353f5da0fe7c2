"""Which calls of others are open, known again, dropped or declined, and which one an answer belongs to."""

from __future__ import annotations

import pytest

from paceline.core.coordination.party import server, worker
from paceline.core.errors import ProtocolError
from paceline.core.parties.incoming_calls import LAST_MAX, IncomingCalls

MODEL, MEANS = "model", "means"


def calls(me: int = 0) -> IncomingCalls[str, str]:
    """Worker 1 has called the model twice and the means once, worker 2 the model."""
    of = IncomingCalls[str, str](server(me))
    for number, (role, rank, call) in enumerate(
        ((MODEL, 1, "first"), (MODEL, 2, "other"), (MEANS, 1, "part"), (MODEL, 1, "second"))
    ):
        assert of.take(role, rank, 0, number, call)
    return of


def test_the_oldest_call_of_a_worker_to_that_role_is_answered_and_each_once() -> None:
    of = calls()
    assert [of.oldest(MODEL, 1, "answer"), of.oldest(MODEL, 1, "answer")] == ["first", "second"]
    assert of.oldest(MEANS, 1, "mean") == "part"
    assert len(of) == 1
    with pytest.raises(ProtocolError, match="server 0 answers worker 1, which has asked nothing: 'answer'"):
        of.oldest(MODEL, 1, "answer")
    with pytest.raises(ProtocolError, match="server 0 answers worker 3, which has asked nothing: 'answer'"):
        of.oldest(MODEL, 3, "answer")


def test_a_call_is_known_by_its_number_also_when_it_is_answered() -> None:
    of = calls()
    of.oldest(MODEL, 1, "answer")
    assert [of.had(1, 0, number) for number in range(5)] == [True, False, True, True, False]
    assert not of.had(2, 0, 0), "each worker has numbers of its own"
    assert not of.had(1, 1, 0), "one call has a part for each slice, under as many numbers"


def test_as_many_calls_are_known_as_a_worker_may_have_open_at_a_slice() -> None:
    of = calls()
    for number in range(10, 10 + LAST_MAX):
        of.take(MODEL, 1, 0, number, "later")
    assert not of.had(1, 0, 3)
    assert all(of.had(1, 0, number) for number in range(10, 10 + LAST_MAX))


def test_of_a_worker_that_has_gone_nothing_is_open_or_known_and_answers_to_it_are_dropped() -> None:
    of = calls()
    of.gone(1)
    assert (len(of), of.had(1, 0, 0), of.had(2, 0, 1)) == (1, False, True)
    assert of.oldest(MODEL, 1, "answer") is None
    assert of.oldest(MODEL, 2, "answer") == "other"


def test_a_worker_that_joins_again_numbers_its_calls_anew_and_is_missed_if_it_has_asked_nothing() -> None:
    of = calls()
    of.gone(1)
    of.came(1)
    with pytest.raises(ProtocolError, match="answers worker 1, which has asked nothing"):
        of.oldest(MODEL, 1, "to the former one")
    assert not of.had(1, 0, 0)
    assert of.take(MODEL, 1, 0, 0, "anew")
    assert of.oldest(MODEL, 1, "answer") == "anew"


def test_a_worker_of_which_only_the_return_is_told_has_no_calls_of_before() -> None:
    of = calls()
    of.came(1)
    assert (len(of), of.had(1, 0, 0)) == (1, False)


def test_in_another_server_view_calls_of_before_are_dropped_and_may_come_again() -> None:
    of = calls()
    of.begin_server_view()
    assert (len(of), of.had(1, 0, 0)) == (0, False)
    assert of.take(MODEL, 1, 0, 0, "again")
    assert of.oldest(MODEL, 1, "answer") == "again"


def test_one_that_leaves_declines_what_is_open_and_what_comes_later() -> None:
    of = IncomingCalls[str, str](worker(0))
    of.take(MODEL, 1, 0, 1, "first")
    of.take(MODEL, 2, 0, 1, "other")
    assert of.leave() == [(1, "first"), (2, "other")]
    assert len(of) == 0
    assert not of.take(MODEL, 2, 0, 2, "late")
    assert (len(of), of.had(2, 0, 2)) == (0, False)
    assert of.leave() == [], "each is declined once"


def test_an_answer_of_one_that_has_left_is_dropped_since_the_call_was_declined() -> None:
    of = IncomingCalls[str, str](worker(0))
    of.take(MODEL, 1, 0, 1, "first")
    of.leave()
    assert of.oldest(MODEL, 1, "share") is None


def test_a_call_is_open_until_it_is_answered() -> None:
    of = calls()
    assert of.is_open(MODEL, 1, "second")
    assert not of.is_open(MEANS, 1, "second")
    of.oldest(MODEL, 1, "answer")
    assert not of.is_open(MODEL, 1, "first")


def test_a_call_that_its_role_could_not_handle_is_taken_out_unless_it_was_answered() -> None:
    of = calls()
    assert of.withdraw(MODEL, 1, "second")
    assert not of.withdraw(MODEL, 1, "second")
    assert not of.withdraw(MODEL, 3, "first")
    assert of.oldest(MODEL, 1, "answer") == "first"
