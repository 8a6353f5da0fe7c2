"""`paceline launch --launcher ssh` over three hosts with an sshd each: unlike, and mortal."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.lab import CPU, Lab, missing, opened
from tests.lab.launched import Launched
from tests.launch.processes import all_gone, descendants, within

WHY_NOT = missing()
pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
HOSTS = "h1 slots=2 group=fast\nh2 group=slow role=worker\nh3 group=slow role=worker\n"


def over_ssh(lab: Lab, *words: str) -> Launched:
    (lab.folder / "hosts").write_text(HOSTS)
    return Launched(lab, "-H", "hosts", "--launcher", "ssh", "--ssh-config", "ssh_config", *words)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    yield from opened(tmp_path, 3)


@pytest.mark.skipif(not (CPU / "cpu.cfs_quota_us").exists(), reason="slow hosts need cgroup v1's CPU quota")
def test_a_run_over_unlike_hosts_survives_the_death_of_one_and_leaves_nobody_anywhere(lab: Lab) -> None:
    lab.slow("h2", 0.25)
    lab.throttle("h3", "50mbit")
    train = ["paceline", "train", "--data", "digits", "--scheme", "gsp", "--epochs", "0", "--seconds", "600"]
    launched = over_ssh(lab, "-n", "4", "-s", "2", *train, "--out", "run")
    process = launched.process
    assert launched.says("accuracy", 150), launched.said
    assert "security: TLS 1.3 on 10.77.0.1" in launched.said
    family = [process.pid, *descendants(process.pid)]
    lab.die("h3")
    assert launched.says("worker 3 (h3, pid", 30), launched.said
    assert launched.says("3 of 4 continue", 5), launched.said
    before = launched.said.count("accuracy")
    assert within(30, lambda: launched.said.count("accuracy") > before), launched.said  # they go on
    process.send_signal(signal.SIGINT)
    assert launched.ends(20) == 130, launched.said
    assert all_gone(family)
    for name in ("h1", "h2"):
        assert within(5, lambda name=name: not lab.running(name)), (name, lab.running(name))  # type: ignore[misc]
    summary = json.loads((lab.folder / "run" / "summary.json").read_text())
    assert len(summary["workers"]) == 4
    assert summary["samples"] > 0
