"""`paceline status`: a run is found by its name, or the newest one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from paceline.runtime.run_folder.status_file import STATUS, read_status
from tests.cli.commands.runs import a_status, told
from tests.cli.conftest import refused_here
from tests.launch.forked_cli import Command, Warm
from tests.launch.process_tree import all_gone, descendants, within

Capture = pytest.CaptureFixture[str]


pytestmark = pytest.mark.skipif(not Path("/proc/1/stat").exists(), reason="reads /proc")


def train(warm: Warm, folder: Path, *words: str) -> Command:
    options = ["--scheme", "asp", "--workers", "2", "--step-ms", "5", "--epochs", "0", "--seconds", "600"]
    return warm.paceline("train", *options, "--out", str(folder), *words, log=Path(os.devnull))


def trains(folder: Path) -> bool:
    return (folder / STATUS).exists() and any(p.steps for p in read_status(folder).parties)


def test_a_run_is_seen_heard_and_ended_in_order_with_all_its_processes(warm: Warm, here: Path, capsys: Capture) -> None:
    one = train(warm, here / "one", "-v")
    try:
        assert within(120, lambda: trains(here / "one"))
        seen = json.loads(told(capsys, "status", "one", "--json"))
        assert (seen["now"], seen["pid"], seen["scheme"]) == ("training", one.pid, "asp")
        family = descendants(one.pid)
        assert {p["pid"] for p in seen["parties"]} <= set(family)
        assert [p["party"] for p in seen["parties"]] == ["evaluator", "server 0", "worker 0", "worker 1"]
        assert "worker 1   joined" in told(capsys, "status", "one")
        assert "[worker 0] " in told(capsys, "logs", "one", "--party", "worker-0")

        assert told(capsys, "kill", "one") == "runs/one has ended: interrupted by SIGTERM"
        assert one.wait(10) == 143
        assert all_gone(family)
        assert json.loads((here / "one" / "summary.json").read_text())["reason"] == "interrupted by SIGTERM"
        assert "over " in told(capsys, "status", "one")
        assert "has ended already: over, interrupted by SIGTERM" in refused_here(capsys, "kill", "one")
    finally:
        one.kill()
        one.wait()


def test_a_run_whose_process_was_killed_is_gone_and_its_number_is_nobody_elses(here: Path, capsys: Capture) -> None:
    a_status(here / "a", born="another boot 1", listens=True)
    assert "gone: process" in told(capsys, "status", "a", code=1)
    assert "is gone already" in refused_here(capsys, "kill", "a")
