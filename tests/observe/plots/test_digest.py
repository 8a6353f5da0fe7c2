"""What figures need of a run, and what of it may be missing."""

from __future__ import annotations

from pathlib import Path

from paceline.core.errors import PacelineError
from paceline.core.trace import Record
from paceline.observe.plots import bars, curves
from paceline.observe.plots.digest import digest, entries
from paceline.observe.runs.run_folders import RunFolder, groups
from tests.observe.fake_runs import summary
from tests.observe.plots.drawing import run, spans


def test_a_trace_that_is_missing_costs_its_curves_only() -> None:
    def gone() -> list[Record]:
        raise PacelineError("a/trace.jsonl: the trace cannot be read (No such file or directory)")

    [entry], notes = entries(groups([RunFolder(path=Path("a"), summary=summary(), records=gone)]))
    assert notes == ["a/trace.jsonl: the trace cannot be read (No such file or directory); in tables and bars only"]
    assert curves.accuracy([entry], by="time") is None
    assert bars.throughput([entry]) is not None


def test_a_digest_keeps_of_the_spans_those_of_the_first_steps_only() -> None:
    kept = digest(run("bsp", records=spans(4), seconds=10.0)).begin
    assert 0 < len(kept) < len(spans(4))
