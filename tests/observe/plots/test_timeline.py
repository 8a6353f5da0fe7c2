"""The timeline, by what is on its axes."""

from __future__ import annotations

from typing import Any

from paceline.core.trace import Applied, Record, Span
from paceline.observe.plots.timeline import Bar, Message, bars, timeline_figure


def span(rank: int, activity: str, at: float, seconds: float, steps: int = 0) -> Span:
    return Span(at=at, rank=rank, activity=activity, seconds=seconds, steps=steps)


def applied(at: float, staleness: int, weight: float = 1.0, shard: int = 0) -> Applied:
    return Applied(at=at, shard=shard, ranks=(0,), version=1, staleness=staleness, weight=weight, samples=1)


TRACE: list[Record] = [
    span(0, "computing", 1.0, 1.0, steps=1),
    span(1, "computing", 3.0, 3.0, steps=2),
    applied(3.2, staleness=0),
    applied(3.3, staleness=2, weight=0.0),
    applied(3.3, staleness=9, shard=1),
    span(0, "waiting", 4.0, 2.5),
    span(0, "communicating", 4.0, 0.5),
    applied(11.0, staleness=5),
]


def figure(records: list[Record], messages: tuple[Message, ...] = ()) -> Any:
    return timeline_figure("ssp", "s = 1", records, ["worker 0", "worker 1"], 10.0, messages)


def test_spans_of_a_worker_that_end_together_lie_one_after_the_other() -> None:
    own = sorted((bar for bar in bars(TRACE) if bar.rank == 0), key=lambda bar: bar.begin)
    assert own == [
        Bar(0, "computing", 0.0, 1.0, 1),
        Bar(0, "waiting", 1.0, 3.5, 0),
        Bar(0, "communicating", 3.5, 4.0, 0),
    ]


def test_every_worker_has_a_row_with_its_steps_and_its_waiting() -> None:
    rows, _ = figure(TRACE).axes
    assert [label.get_text() for label in rows.get_yticklabels()] == ["worker 0", "worker 1"]
    said = [text.get_text() for text in rows.texts]
    assert "1 step, waits 25%" in said
    assert "2 steps, waits 0%" in said


def test_updates_of_the_first_shard_are_shown_and_dropped_ones_are_marked() -> None:
    _, staleness = figure(TRACE).axes
    kept, dropped = staleness.lines
    assert list(kept.get_ydata()) == [0]
    assert list(dropped.get_ydata()) == [2]
    assert [text.get_text() for text in staleness.texts] == ["1 update,\n1 dropped (x)"]


def test_without_updates_there_are_the_workers_alone_and_their_messages_are_arrows() -> None:
    spans = [record for record in TRACE if isinstance(record, Span)]
    messages = (Message(0, 1, 1.0, 1.5), Message(1, 0, 9.9, 10.1))  # the second arrives after what is shown
    (rows,) = figure(spans, messages).axes
    assert [text.xy for text in rows.texts if text.arrow_patch] == [(1.5, 1 - 0.66 / 4)]
