"""Shares of a data set are chosen without torch."""

from __future__ import annotations

import subprocess
import sys


def test_choosing_shares_does_not_import_torch() -> None:
    check = "import sys, paceline.engine.data.partition_plan; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
