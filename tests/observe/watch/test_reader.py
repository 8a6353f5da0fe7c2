"""The page follows the trace of the newest run, and says why it cannot."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paceline.core.trace import Span
from paceline.observe.trace.trace_file import TraceWriter
from paceline.observe.trace.trace_tail import Follower
from paceline.observe.watch.page_data import PageQuery
from paceline.observe.watch.reader import Forecast, Reader
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
    reader._ask(PageState(workers=2), [], (), 0.0)
    assert reader.picture(PageQuery())["forecast"] == []
    reader._ask(reader._state, [], (), 0.0)
    assert [row["scheme"] for row in reader.picture(PageQuery())["forecast"]] == ["asp"]
