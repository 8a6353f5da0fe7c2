"""Chrome's trace events: what ui.perfetto.dev insists on, and that nothing of the trace is lost."""

from __future__ import annotations

import io
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.main import main
from paceline.core.trace import Applied, Decided, Ended, Evaluated, MemberChange, Record, Span
from paceline.observe.export import chrome
from paceline.observe.trace.trace_file import TraceWriter
from tests.observe.fake_runs import worker

FIELDS = {
    "M": {"name", "pid", "tid", "args"},
    "X": {"name", "cat", "pid", "tid", "ts", "dur"},
    "i": {"name", "pid", "tid", "ts", "s", "args"},
    "C": {"name", "pid", "tid", "ts", "args"},
}

TRACE: list[Record] = [
    MemberChange(at=0.0, party="worker 0", event="joined"),
    Span(at=0.1, rank=0, activity="computing", seconds=0.1, steps=1, samples=32),
    # both end at once, and were noted one after the other: first it waited, then bytes moved
    Span(at=0.5, rank=0, activity="waiting", seconds=0.3),
    Span(at=0.5, rank=0, activity="communicating", seconds=0.1),
    Span(at=0.4, rank=1, activity="computing", seconds=0.4, steps=1, samples=32),
    Decided(at=0.1, party="server 0", rank=0, verdict="wait", reason="waits for worker 1"),
    Applied(at=0.45, shard=0, ranks=(0, 1), version=1, staleness=0, weight=1.0, samples=64),
    Evaluated(at=0.5, accuracy=0.5, loss=math.nan, samples=64, seconds=0.01),
    # of a clock that runs behind, and of a run that diverges
    Decided(at=-0.001, party="server 0", rank=1, verdict="wait", reason=""),
    Applied(at=0.55, shard=1, ranks=(0,), version=1, staleness=0, weight=math.nan, samples=64),
    Span(at=math.nan, rank=1, activity="waiting", seconds=0.1),
    Ended(at=0.6, reason="steps"),
]


def written(records: list[Record], **known: Any) -> list[dict[str, Any]]:
    out = io.StringIO()
    count = chrome.write(out, records, **known)
    events = json.loads(out.getvalue(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))["traceEvents"]
    assert len(events) == count
    return events  # type: ignore[no-any-return]


def test_every_event_has_what_its_phase_needs_and_no_time_is_negative() -> None:
    for event in written(TRACE):
        assert FIELDS[event["ph"]] <= set(event)
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
        assert event.get("s", "t") in "tpg"
        if event["ph"] == "C":
            assert all(isinstance(number, int | float) for number in event["args"].values())


def test_a_worker_has_one_track_named_and_its_spans_lie_on_it_one_after_the_other() -> None:
    events = written(TRACE, workers=[worker(0), worker(1, slowdown=8.0)])
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = [e for e in events if e["ph"] == "X"]
    by_track = {
        name: sorted((s for s in spans if (s["pid"], s["tid"]) == key), key=lambda s: s["ts"])
        for key, name in names.items()
    }
    first, second = by_track["worker 0 (cpu)"], by_track["worker 1 (cpu ×8)"]
    assert [(s["name"], s["ts"], s["dur"]) for s in first] == [
        ("computing", 0.0, 100_000.0),
        ("waiting", 100_000.0, 300_000.0),
        ("communicating", 400_000.0, 100_000.0),
    ]
    assert len(second) == 1
    for track in by_track.values():
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-9 for a, b in pairwise(track))


def test_decisions_updates_membership_and_accuracy_are_on_it() -> None:
    events = written(TRACE)
    marks = {e["name"]: e for e in reversed(events) if e["ph"] == "i"}
    assert set(marks) == {"worker 0 joined", "wait", "version 1", "ended: steps"}
    assert marks["wait"]["args"] == {"party": "server 0", "rank": 0, "verdict": "wait", "reason": "waits for worker 1"}
    counters = [(e["name"], e["ts"], e["args"]) for e in events if e["ph"] == "C"]
    assert ("test accuracy", 500_000.0, {"test accuracy": 0.5}) in counters
    assert not any(name == "test loss" for name, _, _ in counters)  # it was not a number


def test_a_run_that_was_killed_is_exported_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with TraceWriter(tmp_path / "run" / "trace.jsonl") as trace:
        for record in TRACE[:5]:
            trace.append(record)
    assert main(["export", str(tmp_path / "run"), "--to", "chrome", str(tmp_path / "out.json")]) == 0
    assert len(json.loads((tmp_path / "out.json").read_text())["traceEvents"]) == 6 + 4 + 4 + 1
    assert main(["export", str(tmp_path / "run"), "--to", "csv", str(tmp_path / "sheets")]) == 0
    assert (tmp_path / "sheets" / "span.csv").read_text().splitlines()[:2] == [
        "at,rank,activity,seconds,steps,samples,hidden,exchanges,cpu",
        "0.1,0,computing,0.1,1,32,0.0,0,0.0",
    ]
    assert main(["export", str(tmp_path / "run"), "--to", "crome", "x"]) == 2
    assert "did you mean 'chrome'?" in capsys.readouterr().err
