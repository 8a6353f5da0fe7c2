"""`paceline grow`: a worker more for a run of processes that goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from paceline.cli.commands import grow
from paceline.cli.main import main
from paceline.runtime.run_folder.status_file import PartyStatus, read_status
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


@pytest.mark.parametrize("steps", [0, 5])
def test_one_that_has_trained_has_come_though_the_run_ends_with_it(tmp_path: Path, steps: int) -> None:
    party = PartyStatus(party="worker 2", host="here", pid=1, state="left", steps=steps)
    a_status(tmp_path / "one", listens=True, grows=True, parties=(party,))
    leader = subprocess.Popen(["true"])
    pidfd = os.pidfd_open(leader.pid)
    leader.wait(30)
    try:
        if steps:
            assert grow._newcomer(tmp_path / "one", {"worker 0", "worker 1"}, pidfd) == party
        else:
            with pytest.raises(ProcessLookupError):
                grow._newcomer(tmp_path / "one", {"worker 0", "worker 1"}, pidfd)
    finally:
        os.close(pidfd)
