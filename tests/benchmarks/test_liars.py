"""Lies of a worker, in processes: the run ends well and names the liar. The script tries all fields of all schemes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "liars.py"
LIES = "Push.samples|beyond,Push.g|short"


def test_a_lying_worker_is_named_and_expelled_and_the_run_ends_well() -> None:
    words = ["--schemes", "bsp", "--only", LIES, "--processes", "--each", "--bound", "0.3"]
    run = subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count(": named, expelled,") == 2, run.stdout
    assert "0 of 2 lies do harm: holds" in run.stdout
