"""What reaches a newcomer before its role exists."""

from __future__ import annotations

from paceline.core.coordination.party import server, worker
from paceline.core.parties.early_messages import EarlyMessages


def held(early: EarlyMessages[str], *messages: str, incarnation: int = 0, needs_role: bool = True) -> list[bool]:
    return [early.hold(worker(1), incarnation, message, needs_role=needs_role) for message in messages]


def test_what_needs_the_role_is_kept_in_order_until_the_role_exists() -> None:
    early = EarlyMessages[str]()
    early.begin(late=True)
    assert early.holding
    assert held(early, "first", "second") == [True, True]
    assert held(early, "an answer", needs_role=False) == [False]
    assert early.release() == ["first", "second"]
    assert held(early, "while the role hears these") == [True]
    assert early.release() == ["while the role hears these"]
    assert early.release() == []
    assert not early.holding
    assert held(early, "third") == [False]


def test_what_came_of_one_that_leaves_while_the_role_hears_of_others_is_not_lost() -> None:
    early = EarlyMessages[str]()
    early.begin(late=True)
    held(early, "its last")
    assert early.release_of_leavers() == []
    early.left(worker(1), 0)
    assert early.release() == ["its last"]


def test_nothing_is_kept_before_the_roster_or_by_one_that_is_there_from_the_beginning() -> None:
    early = EarlyMessages[str]()
    assert held(early, "before the roster") == [False]
    early.begin(late=False)
    assert not early.holding
    assert held(early, "from the beginning") == [False]


def test_nothing_of_a_sender_that_was_lost_meanwhile_reaches_the_role() -> None:
    early = EarlyMessages[str]()
    early.begin(late=True)
    for rank, message in ((1, "first"), (2, "second"), (1, "third")):
        early.hold(worker(rank), 0, message, needs_role=True)
    early.refuse(worker(1), 0)
    assert held(early, "of its next incarnation", incarnation=1) == [True]
    assert early.release() == ["second", "of its next incarnation"]
    assert early.release() == []
    early.refuse(worker(1), 1)
    assert not early.holding


def test_what_the_next_incarnation_has_sent_by_then_stays_when_the_former_is_lost() -> None:
    early = EarlyMessages[str]()
    early.begin(late=True)
    for incarnation in range(3):
        held(early, f"of incarnation {incarnation}", incarnation=incarnation)
    early.refuse(worker(1), 1)
    assert early.release() == ["of incarnation 2"]


def test_what_the_next_incarnation_has_sent_by_then_does_not_come_before_the_leave_of_the_former() -> None:
    early = EarlyMessages[str]()
    early.begin(late=True)
    for incarnation in range(3):
        held(early, f"of incarnation {incarnation}", incarnation=incarnation)
    early.left(worker(1), 1)
    assert early.release_of_leavers() == ["of incarnation 0", "of incarnation 1"]
    assert early.release() == ["of incarnation 2"]


def test_what_a_worker_said_before_it_left_comes_first() -> None:
    early = EarlyMessages[str]()
    early.begin(late=True)
    for rank, message in ((1, "first"), (2, "second"), (1, "third")):
        early.hold(worker(rank), 0, message, needs_role=True)
    early.left(worker(1), 0)
    assert held(early, "of its next incarnation", incarnation=1) == [True]
    assert early.release_of_leavers() == ["first", "third"]
    assert early.holding
    assert early.release() == ["second", "of its next incarnation"]
    assert early.release_of_leavers() == []


def test_what_a_worker_said_before_it_left_stays_when_its_process_is_lost_later() -> None:
    early = EarlyMessages[str]()
    early.begin(late=True)
    held(early, "first")
    early.left(worker(1), 0)
    early.refuse(worker(1), 0)
    assert (early.release_of_leavers(), early.release()) == (["first"], [])


def test_nothing_that_servers_said_before_they_went_back_reaches_the_role() -> None:
    early = EarlyMessages[str]()
    early.begin(late=True)
    for who in (server(0), worker(0)):
        early.hold(who, 0, str(who), needs_role=True)
    early.servers_went_back()
    assert early.release() == ["worker 0"]
    assert early.release() == []
    early.servers_went_back()
    assert not early.holding
