"""Messages of a liar are brought within their bounds, or it is expelled."""

from __future__ import annotations

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.local.push_sum import Share
from paceline.core.paramserver.clocks import Clocks
from paceline.core.validation.bounds import COUNT_MAX, PlanLimits
from paceline.core.validation.message_checker import Checker
from paceline.core.vector import Ghost
from tests.sim.fuzzing.liars import play


def test_a_round_that_is_brought_to_its_bounds_may_be_told_on() -> None:
    """An honest worker that returned a share with the round that a liar had given it had the strike."""
    sim = play(6699)
    assert set(sim.members.banned) <= sim.liars
    checker = Checker(PlanLimits(workers=3))
    for round in (COUNT_MAX, 2**60):
        share = Share(w=Ghost(1), weight=0.5, round=round)
        if checker.check(0, share) is not None:
            share = checker.nearest(0, share)
        assert share.round <= COUNT_MAX


def test_a_clock_of_2_to_the_60_makes_nobody_count_to_it() -> None:
    clocks = Clocks([0, 1])
    clocks.tick(0, 2**60)
    clocks.tick(1, 2**60 + 5)
    assert clocks.low == 2**60
