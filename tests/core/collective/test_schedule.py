"""A schedule is steps of transfers, of which each is one moment."""

from __future__ import annotations

from collections import Counter

import pytest

from paceline.core.collective import PEERS, schedule_for
from tests.core.collective.every_schedule import TELLING, schedules


@pytest.mark.parametrize("n", TELLING)
def test_a_step_is_one_moment(n: int) -> None:
    """Nothing that a member sends in a step is changed in that step, and no pair talks twice the same way."""
    for schedule in schedules(n):
        for step in schedule.steps:
            assert max(Counter((t.src, t.dst) for t in step).values()) == 1
            sent = {(t.src, p) for t in step for p in range(t.first, t.stop)}
            assert not sent & {(t.dst, p) for t in step for p in range(t.first, t.stop)}


def test_one_member_has_nothing_to_do() -> None:
    assert [schedule_for(name, 1).steps for name in PEERS] == [()] * len(PEERS)
