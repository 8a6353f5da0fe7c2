"""Whom a worker that leaves asks whether they have taken its last messages, and when it need not ask any more."""

from __future__ import annotations

import pytest

from paceline.core.coordination.party import COORDINATOR, Party, server, worker
from paceline.core.parties.delivery_confirmation import AllTaken, AskTaken, DeliveryConfirmation, TakenAnswer

TAKEN, GONE, VOID = TakenAnswer.TAKEN, TakenAnswer.GONE, TakenAnswer.VOID
W1, W2, S0, S1 = worker(1), worker(2), server(0), server(1)


def leaver(*sent: Party) -> DeliveryConfirmation:
    """Worker 0, whose roles have sent something to these."""
    confirmation = DeliveryConfirmation(worker(0))
    for who in sent:
        confirmation.sent(who)
    return confirmation


def test_who_was_sent_something_is_asked_once_and_who_was_sent_nothing_is_not() -> None:
    assert leaver(W2, S0, W2, S1).begin(()) == AskTaken((S0, S1, W2))


def test_others_that_it_is_connected_to_are_asked_as_well() -> None:
    """They may have been sent what no role sends: a part of a mean, or a control message."""
    assert leaver(W2).begin([W1, W2, S0]) == AskTaken((S0, W1, W2))


def test_who_has_sent_nothing_and_knows_nobody_waits_for_nobody() -> None:
    assert leaver().begin(()) == AllTaken()


def test_neither_itself_nor_the_coordinator_is_waited_for() -> None:
    assert leaver(worker(0), COORDINATOR).begin([worker(0), COORDINATOR]) == AllTaken()


def test_all_is_taken_when_each_that_was_asked_has_answered() -> None:
    confirmation = leaver(W1, W2, S0)
    confirmation.begin(())
    assert [confirmation.answered(who, TAKEN) for who in (W2, S0, W1)] == [None, None, AllTaken()]


def test_one_that_is_lost_has_nothing_to_take() -> None:
    confirmation = leaver(W1, W2)
    confirmation.begin(())
    assert [confirmation.answered(W1, GONE), confirmation.answered(W2, TAKEN)] == [None, AllTaken()]


def test_what_comes_back_and_is_passed_on_is_waited_for_in_a_further_round() -> None:
    """A worker that had left before sends a share back, and the leaver hands it over to another one."""
    confirmation = leaver(W1)
    confirmation.begin(())
    confirmation.sent(W2)  # before the answer of worker 1, over the same connection
    assert confirmation.answered(W1, TAKEN) == AskTaken((W2,))
    confirmation.sent(W1)
    assert confirmation.answered(W2, TAKEN) == AskTaken((W1,))
    assert confirmation.answered(W1, TAKEN) == AllTaken()


def test_one_that_is_sent_something_after_its_answer_is_asked_again() -> None:
    confirmation = leaver(W1, W2)
    confirmation.begin(())
    assert confirmation.answered(W1, TAKEN) is None
    confirmation.sent(W1)
    assert confirmation.answered(W2, TAKEN) == AskTaken((W1,))


def test_one_that_is_sent_something_before_its_answer_is_asked_again() -> None:
    """The question may have been on its way already, and the answer then says nothing of what followed."""
    confirmation = leaver(W1)
    confirmation.begin(())
    confirmation.sent(W1)
    assert confirmation.answered(W1, TAKEN) == AskTaken((W1,))


def test_a_question_that_was_dropped_is_put_again_and_the_others_are_not_asked_twice() -> None:
    """The end of a run voids all calls, and with them the questions."""
    confirmation = leaver(W1, W2)
    confirmation.begin(())
    assert confirmation.answered(W1, VOID) is None
    assert confirmation.answered(W2, TAKEN) == AskTaken((W1,))
    assert confirmation.answered(W1, TAKEN) == AllTaken()


def test_who_begins_again_is_owed_no_answer_from_before() -> None:
    confirmation = leaver(W1)
    confirmation.begin(())
    assert confirmation.begin([W2]) == AskTaken((W2,))
    assert confirmation.answered(W2, TAKEN) == AllTaken()


def test_an_answer_of_one_that_was_not_asked_is_an_error() -> None:
    confirmation = leaver(W1)
    confirmation.begin(())
    with pytest.raises(KeyError):
        confirmation.answered(W2, TAKEN)
