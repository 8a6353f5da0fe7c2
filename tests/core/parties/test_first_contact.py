"""Who is refused for its version, and what a caller does then; both drivers ask this file."""

from __future__ import annotations

import pytest

from paceline.core.parties.first_contact import AGAIN_SECONDS, CallAgain, CallAttempts, GiveUp, why_refused


def test_one_version_is_let_in() -> None:
    assert why_refused(2, 2) == ""
    assert CallAttempts(2).heard(2) is None


@pytest.mark.parametrize("theirs", [1, 3, 0, 255])
def test_another_one_is_refused_with_both_versions_and_the_way_out(theirs: int) -> None:
    why = why_refused(theirs, 2)
    assert (
        why
        == f"the other side speaks protocol version {theirs}, this side 2: install one version of paceline on all hosts"
    )


def test_a_caller_that_hears_of_another_version_calls_no_more() -> None:
    attempts = CallAttempts(2)
    assert attempts.heard(3) == GiveUp(why_refused(3, 2), other_version=True)


def test_a_caller_that_is_sent_away_calls_again_a_few_times_and_then_says_what_it_heard_last() -> None:
    attempts = CallAttempts(2)
    assert [attempts.closed("reset") for _ in AGAIN_SECONDS] == [CallAgain(after) for after in AGAIN_SECONDS]
    assert attempts.closed("reset again") == GiveUp("reset again")
