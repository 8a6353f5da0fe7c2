"""The script of gradients as rows, in a tiny configuration."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "sparse_rows.py"


def test_rows_move_fewer_bytes_and_the_verdict_is_the_exit_code() -> None:
    job = [sys.executable, str(SCRIPT), "--rows", "5000", "--width", "8", "--batch", "16", "--rounds", "1"]
    done = subprocess.run([*job, "--steps", "5"], capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    up = {name: float(mb) for name, mb in re.findall(r"^(as rows|whole) .* ([\d.]+) MB up", done.stdout, re.MULTILINE)}
    assert 0 < up["as rows"] < up["whole"] / 5
    assert done.returncode == (0 if done.stdout.rstrip().endswith(": holds") else 1)
