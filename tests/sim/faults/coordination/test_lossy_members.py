"""How a simulated worker that leaves declines the calls of others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paceline.sim.faults.coordination.lossy_members import LossyMembers


def call_of(name: str) -> Any:
    return SimpleNamespace(incarnation=SimpleNamespace(party=SimpleNamespace(name=name)))


class Declining:
    """What of the members takes part in declining: streams that keep what is sent, and calls that fail."""

    _sends_decline, _is_declined = LossyMembers._sends_decline, LossyMembers._is_declined

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, Any, tuple[Any, ...]]] = []
        self.failed: list[tuple[Any, str]] = []
        self.streams = self
        self.calls = SimpleNamespace(has_no_answer=lambda call, by: self.failed.append((call, by.name)))

    def send(self, src: Any, dst: Any, nbytes: int, act: Any, args: Any, *, past_role: bool) -> None:
        assert past_role, "no role hears it, so nobody waits until it is taken"
        self.sent.append((src.name, dst.name, act, args))


@pytest.fixture
def leaver() -> Any:
    return SimpleNamespace(name="worker 0", hears=True, open={})


def test_a_leaver_declines_every_call_that_waits_at_it_by_a_message_and_holds_none_any_more(leaver: Any) -> None:
    members: Any = Declining()
    first, second, other = call_of("worker 1"), call_of("worker 1"), call_of("worker 2")
    leaver.open = {1: [first, second], 2: [other]}
    LossyMembers._declines_as_it_leaves(members, leaver)
    assert leaver.open == {}
    assert [(src, dst) for src, dst, _, _ in members.sent] == [
        ("worker 0", "worker 1"),
        ("worker 0", "worker 1"),
        ("worker 0", "worker 2"),
    ]
    assert members.failed == [], "the callers hear it when it arrives"
    for _, _, act, args in members.sent:
        act(*args)
    assert members.failed == [(first, "worker 0"), (second, "worker 0"), (other, "worker 0")]


def test_one_that_has_left_declines_what_it_is_asked_later(leaver: Any) -> None:
    members: Any = Declining()
    LossyMembers.asked_in_vain(members, leaver, call_of("worker 3"))
    assert [(src, dst) for src, dst, _, _ in members.sent] == [("worker 0", "worker 3")]


def test_one_that_is_dead_declines_nothing(leaver: Any) -> None:
    members: Any = Declining()
    leaver.hears = False
    LossyMembers.asked_in_vain(members, leaver, call_of("worker 3"))
    assert (members.sent, members.failed) == ([], [])


def test_calls_that_wait_at_a_lost_worker_fail_where_their_callers_hear_of_that(leaver: Any) -> None:
    members: Any = Declining()
    leaver.open = {1: [call_of("worker 1")]}
    LossyMembers._declines(members, leaver)
    assert (leaver.open, members.sent, members.failed) == ({}, [], [])
