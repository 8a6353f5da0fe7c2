"""A party that was heard may not be lost as silent."""

from __future__ import annotations

import pytest

from paceline.core.trace import MemberChange
from paceline.sim.checking.oracles.silence import Silence


def lost(reason: str = "silent for 3.1 s; 2 of 3 continue") -> MemberChange:
    return MemberChange(at=99.0, party="worker 1", event="lost", reason=reason)


class At:
    """An oracle and the virtual time that it sees."""

    def __init__(self) -> None:
        self.now = 0.0
        self.oracle = Silence(AssertionError, 3.0, lambda: self.now)


def test_one_that_was_silent_may_be_lost_and_one_that_was_heard_may_be_lost_for_other_reasons() -> None:
    at = At()
    at.now = 5.0
    at.oracle.heard("worker 1")
    at.oracle.recorded(lost("its connection was reset"))
    at.now = 8.0
    at.oracle.recorded(lost())


def test_one_that_was_heard_a_moment_ago_is_not_silent_whatever_the_coordinators_clock_shows() -> None:
    at = At()
    at.now = 5.0
    at.oracle.heard("worker 1")
    at.now = 6.0
    with pytest.raises(AssertionError, match=r"worker 1 is lost \(silent for 3.1 s.*it was heard 1.00 s before"):
        at.oracle.recorded(lost())
