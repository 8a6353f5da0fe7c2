"""`paceline grow`: a worker more for a run of processes that goes on."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from paceline.cli.main import main
from paceline.runtime.run_folder.status_file import read_status
from tests.cli.commands.runs import a_status
from tests.cli.conftest import refused_here as refused
from tests.launch.forked_cli import Warm
from tests.launch.process_tree import within
from tests.launch.test_run_ends import Run

Capture = pytest.CaptureFixture[str]


def test_a_worker_comes_to_a_run_that_goes_on_and_when_all_seats_are_taken_that_is_said(
    warm: Warm, tmp_path: Path, capsys: Capture
) -> None:
    run = Run(warm, tmp_path / "run", "--scheme", "bsp", "--initial-workers", "2")
    try:
        assert "2 of 3 workers begin; `paceline grow` starts another" in run.errors
        assert main(["grow", str(run.out), "--by", "2"]) == 1
        said = capsys.readouterr()
        assert re.fullmatch(r"worker 2 joined \(.+, pid \d+\)\n", said.out)
        assert said.err.strip() == f"paceline: {run.out}: 1 of 2 came: all places of --workers are taken"
        assert within(30, lambda: [p for p in read_status(run.out).parties if p.party == "worker 2" and p.steps])
        run.process.send_signal(signal.SIGTERM)
        run.process.wait(60)
    finally:
        run.close()
    summary = json.loads((run.out / "summary.json").read_text())
    assert [(worker["rank"], worker["incarnations"]) for worker in summary["workers"]] == [(0, 1), (1, 1), (2, 1)]
    assert summary["workers"][2]["steps"] > 0


def test_a_run_that_has_no_room_is_not_asked(tmp_path: Path, capsys: Capture) -> None:
    a_status(tmp_path / "one", listens=True)
    assert "began with all its workers: start it with --workers MOST" in refused(capsys, "grow", str(tmp_path / "one"))
    a_status(tmp_path / "one", listens=True, grows=True, state="finishing")
    assert "is finishing: workers come while it is training" in refused(capsys, "grow", str(tmp_path / "one"))
    assert "--by 0: give 1 or more" in refused(capsys, "grow", str(tmp_path / "one"), "--by", "0")
