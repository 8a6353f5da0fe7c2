"""`paceline plot`: figures, a report, and what it leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.cli.commands.plot import standalone
from paceline.cli.main import main
from paceline.observe.runs.summary import write_summary
from paceline.observe.trace.trace_file import TraceWriter
from tests.observe.fake_runs import evaluations, summary
from tests.observe.plots.drawing import spans


def test_the_command_writes_figures_and_a_report_and_names_what_it_leaves_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_summary(summary("bsp"), tmp_path / "a" / "summary.json")
    with TraceWriter(tmp_path / "a" / "trace.jsonl") as trace:
        for record in [*evaluations(), *spans(4)]:
            trace.append(record)
    only = ["--only", "accuracy-time,staleness", "--format", "png,svg", "--out", str(tmp_path / "f")]
    assert main(["plot", str(tmp_path / "a"), *only, "--report", str(tmp_path / "r.html")]) == 0
    assert {path.name for path in (tmp_path / "f").iterdir()} == {"accuracy-time.png", "accuracy-time.svg"}
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert "there is nothing to draw in staleness" in capsys.readouterr().err
    assert main(["plot", str(tmp_path / "a"), "--only", "trafic"]) == 2
    assert "did you mean 'traffic'?" in capsys.readouterr().err


def test_a_line_for_one_worker_alone_is_a_number_or_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_summary(summary("bsp"), tmp_path / "a" / "summary.json")
    assert standalone("0.926") == 0.926
    assert standalone(str(tmp_path / "a")) == summary("bsp").test_accuracy
    for wrong in ("1.5", str(tmp_path / "none")):
        assert main(["plot", str(tmp_path / "a"), "--standalone", wrong, "--out", str(tmp_path / "f")]) == 2
    assert "an accuracy lies between 0 and 1" in capsys.readouterr().err
