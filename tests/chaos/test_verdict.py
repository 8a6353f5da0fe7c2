"""Pauses, and what breaks a bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from paceline.chaos.plan import PlannedFault
from paceline.chaos.runner import FaultOutcome
from paceline.chaos.verdict import ChaosVerdict, longest, pauses
from paceline.core.coordination import party
from paceline.core.trace import Applied, Ended, Record, Span


def applied(shard: int, *moments: float) -> list[Record]:
    return [
        Applied(at=at, shard=shard, ranks=(0,), version=n, staleness=0, weight=1.0, samples=1)
        for n, at in enumerate(moments, 1)
    ]


def test_a_pause_is_between_two_updates_of_one_shard_or_up_to_the_end() -> None:
    records = [*applied(0, 1.0, 2.0, 6.0), *applied(1, 5.0, 1.5, 2.5), Ended(at=7.5, reason="seconds")]
    assert sorted(pauses(records)) == [(1.0, 2.0), (1.5, 2.5), (2.0, 6.0), (2.5, 5.0), (5.0, 7.5), (6.0, 7.5)]
    assert longest(pauses(records)) == 4.0


def test_where_servers_make_no_updates_steps_of_anybody_count() -> None:
    records = [
        Span(at=at, rank=rank, activity="computing", seconds=0.5, steps=1) for rank, at in ((0, 1), (1, 4), (0, 2))
    ]
    assert longest(pauses(records)) == 2.0
    assert pauses([Ended(at=3.0, reason="seconds")]) == []


def verdict(moments: Sequence[float], **changes: Any) -> ChaosVerdict:
    kill = PlannedFault(number=1, at_s=2.0, kind="kill", whom=party.worker(0))
    outcome = FaultOutcome(fault=kill, whom=party.worker(0), at_s=2.0, ended_s=2.0, lost_s=2.1, back_s=3.0)
    found = pauses([*applied(0, *moments), Ended(at=moments[-1], reason="seconds")])
    facts: dict[str, Any] = {"planned": 1, "unasked": 0, "accuracy": 0.9, "quiet": 0.91, "hang_s": 10.0, "points": 2.0}
    return ChaosVerdict(**{"outcomes": [outcome], "pauses": found} | facts | changes)


def test_a_run_within_its_bounds_came_through() -> None:
    good = verdict([1.0, 2.0, 4.5, 5.0])
    assert good.broken() == []
    assert good.table().splitlines()[1].split() == [
        "kill",
        "1",
        "1",
        "1",
        "1.00",
        "s",
        "1.00",
        "s",
        "2.50",
        "s",
        "2.50",
        "s",
    ]
    assert str(good).endswith("the run came through")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"planned": 3}, "ended before 2 of 3 faults"),
        ({"hang_s": 2.0}, "stood still for 2.5 s"),
        ({"quiet": 0.93}, "accuracy 0.900, quiet 0.930"),
    ],
)
def test_every_bound_can_be_broken(changes: dict[str, Any], says: str) -> None:
    bad = verdict([1.0, 2.0, 4.5, 5.0], **changes)
    assert len(bad.broken()) == 1
    assert says in bad.broken()[0]
    assert "NOT as it should be" in str(bad)


def test_without_a_quiet_run_accuracy_is_no_bound() -> None:
    assert verdict([1.0, 2.0], quiet=None, accuracy=0.1).broken() == []
