"""The runs beside one, and their curves."""

from __future__ import annotations

import json
import os
from pathlib import Path

from paceline.core.trace import Ended, Evaluated, Record, Span
from paceline.observe.trace.trace_file import TRACE, TraceWriter
from paceline.observe.watch.panels.run_list import COMPARED_MAX, POINTS_MAX, RunList


def run_of(folder: Path, scheme: str, records: list[Record], *, begun: int = 0, over: bool = True) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(f'[run]\nscheme = "{scheme}"\n')
    os.utime(folder / "config.toml", (1000 + begun, 1000 + begun))
    with TraceWriter(folder / TRACE) as writer:
        for record in records:
            writer.append(record)
    if over:
        summary = {"reason": "epochs", "test_accuracy": 0.9, "seconds": 2.0, "samples": 40}
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def trained(*accuracies: float) -> list[Record]:
    found: list[Record] = []
    for n, accuracy in enumerate(accuracies, 1):
        found.append(Span(at=float(n), rank=0, activity="computing", seconds=1.0, steps=1, samples=20, exchanges=1))
        found.append(Evaluated(at=float(n), accuracy=accuracy, loss=1 - accuracy, samples=20 * n, seconds=0.0))
    return found


def test_runs_of_the_folder_are_listed_the_newest_first(tmp_path: Path) -> None:
    own = run_of(tmp_path / "a", "bsp", trained(0.5, 0.9))
    run_of(tmp_path / "b", "esync", trained(0.5), begun=1, over=False)
    (tmp_path / "no run").mkdir()
    newer, older = RunList().rows(own)
    assert (newer["name"], newer["scheme"], newer["ended"], newer["own"]) == ("b", "esync", "", False)
    assert older == {
        "name": "a",
        "scheme": "bsp",
        "own": True,
        "ended": "epochs",
        "accuracy": 0.9,
        "seconds": 2.0,
        "samples": 40,
    }


def test_curves_grow_with_the_runs_and_are_read_once(tmp_path: Path) -> None:
    a = run_of(tmp_path / "a", "bsp", [*trained(0.5, 0.9), Ended(at=3.0, reason="epochs")])
    b = run_of(tmp_path / "b", "esync", trained(0.25), over=False)
    runs = RunList()
    found = runs.curves(a, ["a", "b", "a"])
    assert found["a"]["points"] == [[1.0, 0.5, 0.5, 20], [2.0, 0.9, 0.1, 40]]
    assert (found["a"]["ended"], found["a"]["now"], found["a"]["samples"]) == ("epochs", 3.0, 40)
    assert found["b"]["points"] == [[1.0, 0.25, 0.75, 20]]
    with (b / TRACE).open("a") as file:
        for record in trained(0.25, 0.75)[-2:]:
            with TraceWriter(tmp_path / "more.jsonl") as writer:
                writer.append(record)
            file.write((tmp_path / "more.jsonl").read_text())
    assert runs.curves(a, ["b"])["b"]["points"] == [[1.0, 0.25, 0.75, 20], [2.0, 0.75, 0.25, 40]]


def test_a_name_from_elsewhere_reads_nothing(tmp_path: Path) -> None:
    a = run_of(tmp_path / "here" / "a", "bsp", trained(0.5))
    run_of(tmp_path / "elsewhere", "bsp", trained(0.5))
    assert RunList().curves(a, ["../elsewhere", str(tmp_path / "elsewhere"), "", "b"]) == {}
    for n in range(COMPARED_MAX + 2):
        run_of(tmp_path / "here" / f"r{n}", "bsp", trained(0.5))
    assert len(RunList().curves(a, [f"r{n}" for n in range(COMPARED_MAX + 2)])) == COMPARED_MAX


def test_a_long_curve_keeps_its_first_and_its_last_point(tmp_path: Path) -> None:
    a = run_of(tmp_path / "a", "bsp", trained(*[n / 1000 for n in range(1000)]))
    points = RunList().curves(a, ["a"])["a"]["points"]
    assert len(points) <= POINTS_MAX + 1
    assert (points[0][0], points[-1][0]) == (1.0, 1000.0)


def test_what_is_no_trace_has_no_curve(tmp_path: Path) -> None:
    a = run_of(tmp_path / "a", "bsp", trained(0.5))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / TRACE).write_text("nonsense\n")
    (tmp_path / "b" / "config.toml").write_text("[run\n")
    (tmp_path / "b" / "summary.json").write_text("[")
    runs = RunList()
    assert runs.curves(a, ["b"])["b"]["points"] == []
    assert {row["name"]: row["scheme"] for row in runs.rows(a)} == {"a": "bsp", "b": ""}
