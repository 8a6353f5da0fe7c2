"""What reaches a newcomer before its role exists."""

from __future__ import annotations

from paceline.core.parties.early_messages import EarlyMessages


def held(early: EarlyMessages[str], *messages: str, needs_role: bool = True) -> list[bool]:
    return [early.hold(message, needs_role=needs_role) for message in messages]


def test_what_needs_the_role_is_kept_in_order_until_the_role_exists() -> None:
    early = EarlyMessages[str]()
    early.begin(late=True)
    assert early.holding
    assert held(early, "first", "second") == [True, True]
    assert held(early, "an answer", needs_role=False) == [False]
    assert early.release() == ["first", "second"]
    assert not early.holding
    assert held(early, "third") == [False]
    assert early.release() == []


def test_nothing_is_kept_before_the_roster_or_by_one_that_is_there_from_the_beginning() -> None:
    early = EarlyMessages[str]()
    assert held(early, "before the roster") == [False]
    early.begin(late=False)
    assert not early.holding
    assert held(early, "from the beginning") == [False]
