"""What is said about leased samples, by workers and by the first server."""

from __future__ import annotations

from paceline.core.coordination import control_messages as control
from paceline.core.parties.lease_reports import RESOLVED_MAX, HandedSamples, ResolvedContributions


def test_what_is_under_way_is_not_past_until_the_scheme_asks_for_work_again() -> None:
    handed = HandedSamples()
    assert handed.past() == control.Past(handed=0)
    assert handed.asks_for_work(8, anew=False) is None
    assert handed.past() == control.Past(handed=8)


def test_a_worker_that_starts_anew_has_nothing_under_way() -> None:
    assert HandedSamples().asks_for_work(24, anew=True) == control.Past(handed=24)


def test_contributions_are_gathered_from_the_first_on_and_told_once_in_order() -> None:
    resolved = ResolvedContributions()
    assert [resolved.add(rank, "applied", ()) for rank in (2, 0, 1)] == [True, False, False]
    (message,) = resolved.messages()
    assert [rank for rank, _, _ in message.contributions] == [2, 0, 1]
    assert list(resolved.messages()) == []
    assert resolved.add(0, "late", ())


def test_a_message_has_a_bounded_number_of_them() -> None:
    resolved = ResolvedContributions()
    for _ in range(RESOLVED_MAX + 1):
        resolved.add(0, "applied", ())
    assert [len(message.contributions) for message in resolved.messages()] == [RESOLVED_MAX, 1]


def test_what_is_not_in_the_copy_yet_stays_in_the_queue_and_so_does_what_comes_behind() -> None:
    resolved = ResolvedContributions()
    resolved.add(0, "applied", ())
    first = resolved.queue()
    resolved.add(1, "late", ())
    fenced = control.Fenced(rank=1, incarnation=0, pending=())
    second = resolved.queue(fenced)
    resolved.add(2, "applied", ())
    assert list(resolved.messages(first)) == [control.SamplesResolved(contributions=((0, "applied", ()),))]
    assert list(resolved.messages(first)) == []
    assert list(resolved.messages(second)) == [control.SamplesResolved(contributions=((1, "late", ()),)), fenced]
    assert list(resolved.messages()) == [control.SamplesResolved(contributions=((2, "applied", ()),))]


def test_what_is_told_at_once_is_not_told_again_when_the_copy_has_it() -> None:
    resolved = ResolvedContributions()
    resolved.add(0, "applied", ())
    last = resolved.queue()
    resolved.add(1, "applied", ())
    assert len(list(resolved.messages())) == 2
    assert list(resolved.messages(last)) == []


def test_what_a_restored_server_has_not_told_is_never_told() -> None:
    """A copy may lack it. Then the worker sends it again."""
    resolved = ResolvedContributions()
    resolved.add(0, "applied", ())
    last = resolved.queue(control.Fenced(rank=1, incarnation=0, pending=()))
    resolved.add(1, "late", ())
    resolved.forget()
    assert list(resolved.messages(last)) == []
    assert resolved.add(2, "applied", ())
    assert list(resolved.messages()) == [control.SamplesResolved(contributions=((2, "applied", ()),))]
