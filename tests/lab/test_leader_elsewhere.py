"""A run that another host leads: its terminal is closed, it is looked at by ssh, its leader dies, and it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.engine.data.digits import TRAIN_SAMPLES
from tests.lab.lab import Lab, missing, opened
from tests.lab.launch_run import Launched, path
from tests.launch.process_tree import within

WHY_NOT = missing()
pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
TRAIN = ["paceline", "train", "--data", "digits", "--scheme", "asp", "--epochs", "12", "--step-ms", "40"]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    yield from opened(tmp_path, 3)


def on_h1(lab: Lab, *words: str) -> subprocess.CompletedProcess[str]:
    """`paceline WORDS` on h1, which is not the host that leads."""
    command = lab.command("h1", sys.executable, "-m", "paceline", *words)
    environment = {**os.environ, "PYTHONPATH": path()}
    return subprocess.run(
        command, cwd=lab.folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def leader(lab: Lab) -> int:
    return int(json.loads((lab.folder / "run" / "status.json").read_text())["pid"])


def test_a_run_outlives_the_terminal_on_another_host_and_the_death_of_its_leader(lab: Lab) -> None:
    (lab.folder / "hosts").write_text("h2\nh3\n")
    options = ["--detach", "--leader", "h2", "-H", "hosts", "--ssh-config", "ssh_config", "--out", "run"]
    options += ["-n", "2", "--checkpoint-every", "1", "--resume", "auto", *TRAIN]
    launched = Launched(lab, *options)
    assert launched.ends(90) == 0, launched.said
    assert "h2 leads it" in launched.said
    assert not lab.running("h1")  # the terminal is closed
    first = leader(lab)
    assert first in lab.pids("h2")
    assert on_h1(lab, "status", "run").returncode == 0
    assert within(60, lambda: any((lab.folder / "run" / "checkpoints").glob("*/manifest.json")))
    os.kill(first, signal.SIGKILL)
    attached = on_h1(lab, "attach", "run")
    assert attached.returncode == 1
    assert "was killed" in attached.stderr
    assert within(40, lambda: not lab.running("h2") and not lab.running("h3")), (lab.running("h2"), lab.running("h3"))
    launched = Launched(lab, *options)
    assert launched.ends(90) == 0, launched.said
    assert leader(lab) != first
    attached = on_h1(lab, "attach", "run")
    assert attached.returncode == 0, attached.stderr
    assert "asp: test accuracy" in attached.stdout
    summary = json.loads((lab.folder / "run" / "summary.json").read_text())
    assert summary["samples"] == pytest.approx(12 * TRAIN_SAMPLES, rel=0.02), summary[
        "samples"
    ]  # of both leaders together
    assert len(summary["workers"]) == 2
