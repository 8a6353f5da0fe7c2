"""What Python has on Linux only is hidden: importing, one worker, and a run of several processes do without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from scripts.check_package import OWN_LOOP

HIDDEN = """
import os, sys
for module in ("fcntl", "termios", "pwd", "grp"):
    sys.modules[module] = None
for name in ("memfd_create", "getuid", "geteuid", "fork", "killpg", "pidfd_open", "sched_getaffinity"):
    if hasattr(os, name):
        delattr(os, name)
"""
COMMAND = """
from paceline.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def run(code: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HIDDEN + code, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_a_script_of_one_worker_trains(tmp_path: Path) -> None:
    done = run(OWN_LOOP, tmp_path)
    assert "steps: 57" in done.stdout, done.stderr


def test_train_starts_its_processes_and_ends_well(tmp_path: Path) -> None:
    done = run(COMMAND, tmp_path, "train", "--steps", "3", "--workers", "2", "--out", "run")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_launch_refuses_scripts_in_one_line(tmp_path: Path) -> None:
    done = run(COMMAND, tmp_path, "launch", "-n", "2", sys.executable, "-c", "pass")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("paceline: paceline launch needs process groups")
