"""An engine that takes all hosts away: with a stand-in for `srun`, which starts agents on this host."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launch.forked_cli import Command, Warm
from tests.launch.process_tree import alive, all_gone, descendants, within

pytest.importorskip("cryptography", reason="`make` installs what a launch's authority needs")
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")

SRUN = f"""#!{sys.executable}
import os, subprocess, sys
words = sys.argv[1:]
count = int(next(word for word in words if word.startswith("--ntasks=")).partition("=")[2])
agent = words[next(at for at, word in enumerate(words) if word.startswith("/")):]
tasks = [subprocess.Popen(agent, env={{**os.environ, "SLURM_PROCID": str(n)}}) for n in range(count)]
sys.exit(max(task.wait() for task in tasks))
"""
LAUNCH = ["launch", "--launcher", "slurm", "-i", "127.0.0.1", "-n", "2", "-s", "1", "--out", "run"]
TRAIN = ["paceline", "train", "--scheme", "asp", "--epochs", "0", "--seconds", "300", "--checkpoint-every", "300"]


@pytest.fixture
def launched(warm: Warm, tmp_path: Path) -> Iterator[Command]:
    """`paceline launch`, outside of any job; what it says is in the file `said`."""
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(SRUN)
    srun.chmod(0o755)
    found = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    found |= {"PATH": f"{srun.parent}:{found['PATH']}", "PYTHONPATH": str(Path(__file__).parents[3])}
    process = warm.paceline(*LAUNCH, *TRAIN, folder=tmp_path, environment=found, log=tmp_path / "said")
    family = [process.pid]
    try:
        assert within(90, lambda: "accuracy" in said_by(tmp_path) or process.poll() is not None), said_by(tmp_path)
        family += descendants(process.pid)
        yield process
    finally:
        process.kill()
        process.wait(10)
        assert all_gone(family, 15.0)


def said_by(folder: Path) -> str:
    said = folder / "said"
    return said.read_text() if said.exists() else ""


def agents_of(process: Command) -> list[int]:
    def line(pid: int) -> bytes:
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return b""

    pids = descendants(process.pid)
    return [pid for pid in pids if b"paceline.launch.remote.agent" in line(pid) and b"--ntasks" not in line(pid)]


@pytest.mark.parametrize("also_the_launcher", [False, True])
def test_a_run_whose_agents_are_all_told_to_go_ends_in_order_as_by_sigterm_and_says_why(
    launched: Command, tmp_path: Path, also_the_launcher: bool
) -> None:
    agents = agents_of(launched)
    assert len(agents) == 2
    for agent in agents:
        os.kill(agent, signal.SIGTERM)
    if also_the_launcher:  # as in a job, where the order is anybody's guess
        assert within(20, lambda: "takes all hosts of this run away" in said_by(tmp_path)), said_by(tmp_path)
        launched.send_signal(signal.SIGTERM)
    assert launched.wait(30) == 143, said_by(tmp_path)
    said = said_by(tmp_path)
    assert "slurm takes all hosts of this run away (SIGTERM to each agent): preempted, queued again" in said
    assert "(ended by: interrupted by SIGTERM)" in said
    assert "lost" not in said.partition("takes all hosts")[2]
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["reason"] == "interrupted by SIGTERM"
    assert len([*(tmp_path / "run" / "checkpoints").iterdir()]) == 1


def test_a_run_of_which_one_agent_is_told_to_go_goes_on(launched: Command, tmp_path: Path) -> None:
    first, _ = agents_of(launched)

    def goes() -> bool:
        if alive(first):  # by the second signal it goes at once
            os.kill(first, signal.SIGTERM)
        return not alive(first)

    assert within(20, goes)
    assert within(20, lambda: "1 of 2 continue" in said_by(tmp_path)), said_by(tmp_path)
    looks = said_by(tmp_path).count("accuracy")
    assert within(30, lambda: said_by(tmp_path).count("accuracy") > looks), said_by(tmp_path)
    assert "takes all hosts" not in said_by(tmp_path)
    assert launched.poll() is None
