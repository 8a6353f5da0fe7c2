"""The script of the coordinator's small messages, in a tiny configuration."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "control_plane.py"


def test_every_call_is_answered_and_the_verdict_is_the_exit_code() -> None:
    job = [sys.executable, str(SCRIPT), "--connections", "3", "--bytes", "100", "--seconds", "0.2", "--rounds", "1"]
    done = subprocess.run(job, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    rate = re.search(r"^messages a second +([\d,.e+]+)", done.stdout, re.MULTILINE)
    assert rate is not None
    assert float(rate[1].replace(",", "")) > 0
    assert done.returncode == (0 if done.stdout.rstrip().endswith(": holds") else 1)
