"""What a member has trained since the last exchange of its group is lost with the speaker."""

from __future__ import annotations

from paceline.core.effects import Trained
from paceline.core.role import WorkCount
from paceline.core.tiers.held_work import HeldWork


def trained(held: HeldWork, steps: int, samples: int, clock: int = 0) -> None:
    held.begin(steps)
    held.trained(Trained([0.0], samples, 1.0))
    if clock:
        held.handed_over(clock)


def test_only_contributions_that_an_exchange_has_are_safe() -> None:
    held = HeldWork()
    trained(held, 8, 64, clock=1)
    trained(held, 8, 60, clock=2)
    trained(held, 5, 40)
    assert held.total == WorkCount(21, 164)
    held.exchanged(1)
    assert held.total == WorkCount(13, 100)
    assert held.lose() == WorkCount(13, 100) == held.lost
    assert held.total == WorkCount(0, 0)
    trained(held, 1, 8, clock=1)
    held.exchanged(1)
    assert held.lose() == WorkCount(0, 0)
    assert held.lost == WorkCount(13, 100), "of all speakers"


def test_where_a_group_works_in_rounds_the_next_one_tells_that_all_before_are_safe() -> None:
    held = HeldWork()
    trained(held, 8, 64)
    held.exchanged()
    assert held.total == WorkCount(0, 0)


def test_answers_of_others_are_no_work() -> None:
    held, answer = HeldWork(), object()
    assert held.trained(answer) is answer
    assert not held.total.samples
