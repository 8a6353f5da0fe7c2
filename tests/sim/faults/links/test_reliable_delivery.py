"""Exactly once, in order, whatever the link does, and nothing of the dead."""

from __future__ import annotations

from random import Random

import pytest

from paceline.sim.faults.links.reliable_delivery import DeliveryVerdict, Receiver, Sender

NEW, REPEAT, GAP, STALE = DeliveryVerdict.NEW, DeliveryVerdict.REPEAT, DeliveryVerdict.GAP, DeliveryVerdict.STALE


def test_each_number_is_taken_once_and_in_order() -> None:
    receiver = Receiver()
    verdicts = [receiver.admit("worker 1", 0, number) for number in (1, 1, 3, 2, 2, 3, 1)]
    assert verdicts == [NEW, REPEAT, GAP, NEW, REPEAT, NEW, REPEAT]
    assert receiver.last("worker 1", 0) == 3


def test_a_later_life_begins_at_one_and_its_former_life_is_stale() -> None:
    receiver = Receiver()
    assert receiver.admit("worker 1", 0, 1) is NEW
    assert receiver.admit("worker 1", 1, 2) is GAP
    assert (
        receiver.admit("worker 1", 0, 2) is NEW
    )  # nothing of the later incarnation was taken, so this one counts still
    assert receiver.admit("worker 1", 1, 1) is NEW
    assert receiver.admit("worker 1", 0, 3) is STALE
    assert (receiver.last("worker 1", 0), receiver.last("worker 1", 1)) == (0, 1)


def test_nothing_is_taken_of_a_fenced_incarnation_or_one_before_it() -> None:
    receiver = Receiver()
    receiver.peers.end("worker 1", 4)
    receiver.peers.end("worker 1", 2)  # news that comes late opens nothing again
    assert [receiver.admit("worker 1", incarnation, 1) for incarnation in (3, 4, 5)] == [STALE, STALE, NEW]
    assert receiver.admit("worker 2", 0, 1) is NEW


def test_a_retry_has_the_same_number_and_contents() -> None:
    sender = Sender()
    assert [sender.put(contents) for contents in "abc"] == [1, 2, 3]
    sender.acknowledged(1)
    sender.acknowledged(0)
    assert list(sender.unacknowledged()) == list(sender.unacknowledged()) == [(2, "b"), (3, "c")]
    assert sender.put("d") == 4


def test_what_is_kept_does_not_grow_with_the_run() -> None:
    sender, receiver = Sender(), Receiver()
    for incarnation in range(20):
        for number in range(1, 50):
            receiver.admit("worker 1", incarnation, number)
            sender.acknowledged(sender.put(number))
        receiver.peers.end("worker 1", incarnation)
    assert (len(sender), len(receiver)) == (0, 1)


@pytest.mark.parametrize("seed", range(20))
def test_over_a_link_that_loses_repeats_and_reorders(seed: int) -> None:
    random = Random(seed)
    sender, receiver, link, got = Sender(), Receiver(), [], []
    for contents in range(40):
        sender.put(contents)
    while len(sender):
        link += [pair for pair in sender.unacknowledged() for _ in range(random.choice((0, 0, 1, 2)))]
        random.shuffle(link)
        for number, contents in link[: random.randrange(len(link) + 1)]:
            if receiver.admit("worker 1", 0, number) is NEW:
                got.append(contents)
        if random.random() < 0.7:
            sender.acknowledged(receiver.last("worker 1", 0))
    assert got == list(range(40))


def test_a_sender_knows_up_to_where_everything_was_taken() -> None:
    sender = Sender()
    assert (sender.sent, sender.taken) == (0, 0)
    for contents in "abc":
        sender.put(contents)
    assert (sender.sent, sender.taken) == (3, 0)
    sender.acknowledged(2)
    assert (sender.sent, sender.taken) == (3, 2)
    sender.acknowledged(3)
    assert sender.taken == 3


def test_a_receiver_expects_what_it_has_not_taken_and_would_take() -> None:
    receiver = Receiver()
    assert not receiver.expects("worker 1", 0, 0)
    assert receiver.expects("worker 1", 0, 1)
    receiver.admit("worker 1", 0, 1)
    assert [receiver.expects("worker 1", 0, number) for number in (1, 2)] == [False, True]
    receiver.admit("worker 1", 1, 1)
    assert not receiver.expects("worker 1", 0, 2), "a later incarnation was heard"
    receiver.peers.end("worker 1", 1)
    assert not receiver.expects("worker 1", 1, 2)
