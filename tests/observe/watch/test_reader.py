"""The page follows the trace of the newest run, and says why it cannot."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from paceline.core.trace import Ended, Evaluated, Span
from paceline.observe.trace.trace_file import TraceWriter
from paceline.observe.trace.trace_tail import Follower
from paceline.observe.watch.page_data import PageQuery
from paceline.observe.watch.panels.run_progress import RunFacts
from paceline.observe.watch.reader import Forecast, Reader, question
from paceline.observe.watch.state import PageState


def test_a_page_that_cannot_go_on_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Follower) -> None:
        raise ZeroDivisionError("what nobody thought of")

    monkeypatch.setattr(Follower, "read", fails)
    reader = Reader(tmp_path)
    reader._follow()
    assert "what nobody thought of" in reader.picture(PageQuery())["problem"]


def test_of_a_folder_of_runs_the_newest_is_followed_and_nothing_of_the_one_before_is_kept(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    assert not reader.read()
    for n, (scheme, samples) in enumerate((("bsp", 32), ("asp", 8))):
        trace = tmp_path / scheme / "trace.jsonl"
        with TraceWriter(trace) as writer:
            writer.append(Span(at=0.1, rank=0, activity="computing", seconds=0.1, steps=1, samples=samples))
        (trace.parent / "config.toml").touch()
        os.utime(trace.parent / "config.toml", (1000.0 + n, 1000.0 + n))
        assert reader.read()
        document = reader.picture(PageQuery())
        assert (document["run"], document["samples"]) == (str(tmp_path / scheme), samples)
        assert f'{{rank="0",run="{tmp_path / scheme}",scheme="x"}} {samples}.0\n' in reader.metrics("x")
    os.utime(tmp_path / "bsp" / "trace.jsonl", (3e9, 3e9))  # that one goes on, too
    assert not reader.read()
    assert reader.run == tmp_path / "asp"


def test_a_forecast_for_the_run_before_is_not_shown_with_this_one(tmp_path: Path) -> None:
    reader = Reader(tmp_path, lambda _: [Forecast(scheme="asp", rate=9.0, kind="fresh")])
    reader._ask(PageState(workers=2), [], question(reader._state), 0.0)
    assert reader.picture(PageQuery())["forecast"] == []
    reader._ask(reader._state, [], question(reader._state), 0.0)
    assert [row["scheme"] for row in reader.picture(PageQuery())["forecast"]] == ["asp"]


def held_up(writer: TraceWriter, first: int, last: int) -> None:
    """Two workers of which the second takes ten times as long."""
    for n in range(first, last):
        for rank, step_s in enumerate((0.1, 1.0)):
            at = float(n)
            begin = at - 1.0 + step_s
            writer.append(Span(at=begin, rank=rank, activity="computing", seconds=step_s, steps=1, samples=8))
            writer.append(Span(at=at, rank=rank, activity="waiting", seconds=1.0 - step_s))


def test_alerts_are_told_while_a_run_goes_on_and_not_of_one_that_is_over(tmp_path: Path) -> None:
    told: list[tuple[str, bool]] = []
    reader = Reader(tmp_path, alerts=lambda alert, begins: told.append((alert.kind, begins)))
    lines = tmp_path / "lines.jsonl"
    for n in range(3, 30, 3):
        with TraceWriter(lines) as writer:
            held_up(writer, n - 2, n + 1)
        with (tmp_path / "trace.jsonl").open("a") as file:
            file.write(lines.read_text())
        assert reader.read()
    assert told == [("worker", True)]
    (alert,) = reader.picture(PageQuery())["alerts"]
    assert alert["kind"] == "worker"
    assert "Worker 1 holds the others up" in alert["text"]
    with TraceWriter(tmp_path / "over" / "trace.jsonl") as writer:
        held_up(writer, 1, 30)
        writer.append(Ended(at=31.0, reason="steps"))
    over = Reader(tmp_path / "over", alerts=lambda alert, begins: told.append((alert.kind, begins)))
    assert over.read()
    assert over.picture(PageQuery())["alerts"] == []
    assert told == [("worker", True)]


def test_a_loss_that_is_nan_and_ends_the_run_is_told_if_the_run_was_seen_before(tmp_path: Path) -> None:
    told: list[tuple[str, bool]] = []
    end = [Evaluated(at=6.0, accuracy=0.1, loss=math.nan, samples=9, seconds=0.0), Ended(at=6.5, reason="steps")]
    for name, seen in (("live", True), ("over", False)):
        reader = Reader(tmp_path / name, alerts=lambda alert, begins: told.append((alert.kind, begins)))
        for part in ([], end) if seen else (end,):
            with TraceWriter(tmp_path / name / "trace.jsonl") as writer:
                held_up(writer, 1, 3)
                for record in part:
                    writer.append(record)
            assert reader.read()
        assert told == [("loss", True)]


def test_progress_goes_by_what_the_files_of_the_run_say(tmp_path: Path) -> None:
    facts = RunFacts(steps=20, epoch_samples=64)
    reader = Reader(tmp_path, facts=lambda: facts)
    with TraceWriter(tmp_path / "trace.jsonl") as writer:
        held_up(writer, 1, 6)
    assert reader.read()
    told = reader.picture(PageQuery())["progress"]
    assert told == {"done": 0.25, "left_s": 15.0, "epoch": 1.25, "rate": None}
