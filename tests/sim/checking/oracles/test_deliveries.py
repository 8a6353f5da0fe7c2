"""Deliveries that break a promise are found: twice, out of order, of the dead, or acknowledged before they came."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paceline.sim.checking.oracles.deliveries import Deliveries


def process(name: str, incarnation: int = 0, *, hears: bool = True) -> Any:
    kind = name.partition(" ")[0]
    return SimpleNamespace(name=name, incarnation=incarnation, process=(name, incarnation), kind=kind, hears=hears)


A, B, A_AGAIN = process("worker 0"), process("server 0"), process("worker 0", 1)


@pytest.fixture
def deliveries() -> Deliveries:
    return Deliveries(AssertionError)


def test_each_message_once_and_in_order_is_right(deliveries: Deliveries) -> None:
    for number in (1, 2, 3):
        deliveries.delivered(A, B, number)
    deliveries.delivered(B, A, 1)  # the other way has numbers of its own
    deliveries.acknowledged(A, B, 3)


@pytest.mark.parametrize("number", [1, 3])
def test_one_that_comes_twice_or_too_early_is_found(deliveries: Deliveries, number: int) -> None:
    deliveries.delivered(A, B, 1)
    with pytest.raises(AssertionError, match=f"server 0 takes message {number} of worker 0 after message 1"):
        deliveries.delivered(A, B, number)


def test_a_message_of_an_earlier_incarnation_after_a_later_one_is_found(deliveries: Deliveries) -> None:
    deliveries.delivered(A, B, 1)
    deliveries.delivered(A_AGAIN, B, 1)
    with pytest.raises(AssertionError, match="of incarnation 0 of worker 0 after one of 1"):
        deliveries.delivered(A, B, 2)


def test_a_message_of_a_fenced_incarnation_is_found_and_the_next_incarnation_is_heard(deliveries: Deliveries) -> None:
    deliveries.fenced(B, A)
    deliveries.delivered(A_AGAIN, B, 1)
    with pytest.raises(AssertionError, match="which it has fenced"):
        deliveries.delivered(A, B, 1)


def test_what_is_acknowledged_and_was_not_taken_is_found(deliveries: Deliveries) -> None:
    deliveries.delivered(A, B, 1)
    with pytest.raises(AssertionError, match="took its message 2; it took 1"):
        deliveries.acknowledged(A, B, 2)


def test_one_that_has_left_and_whose_last_message_was_not_taken_is_found(deliveries: Deliveries) -> None:
    deliveries.delivered(A, B, 1)
    deliveries.left(A, [(B, 1)])
    with pytest.raises(AssertionError, match="worker 0 says that it has left; of its 2 messages server 0 took 1"):
        deliveries.left(A, [(B, 2)])


def test_one_that_has_left_waits_for_a_server_that_is_away_and_not_for_a_worker_that_is_dead(
    deliveries: Deliveries,
) -> None:
    deliveries.left(A, [(process("worker 1", hears=False), 1)])
    with pytest.raises(AssertionError, match="of its 1 messages server 1 took 0"):
        deliveries.left(A, [(process("server 1", hears=False), 1)])


W1 = process("worker 1")


def test_a_drained_process_that_ends_without_what_a_worker_has_sent_is_found(deliveries: Deliveries) -> None:
    deliveries.delivered(W1, A, 1)
    deliveries.ended(A, [(W1, 1)], [W1])
    with pytest.raises(AssertionError, match="worker 0 ends; of 2 messages of worker 1 it took 1"):
        deliveries.ended(A, [(W1, 2)], [W1])
    deliveries.fenced(A, W1)
    deliveries.ended(A, [(W1, 2)], [])


def test_it_cannot_know_that_before_it_has_heard_of_each_worker_that_knew(deliveries: Deliveries) -> None:
    deliveries.delivered(W1, A, 1)
    deliveries.knows_of_leave(W1, A, 1)
    with pytest.raises(AssertionError, match="worker 0 ends, and has heard nothing of worker 1 since that one knew"):
        deliveries.ended(A, [(W1, 1)], [W1])
    deliveries.ended(A, [(W1, 1)], [])  # that one is lost
    deliveries.delivered(W1, A, 2)  # it answers
    deliveries.ended(A, [(W1, 1)], [W1])


def test_a_worker_that_had_left_itself_has_said_before_that_all_is_taken(deliveries: Deliveries) -> None:
    deliveries.left(W1, [])
    deliveries.knows_of_leave(W1, A, 0)
    deliveries.ended(A, [], [W1])
