"""What a process that was killed has left of a file is removed by the next one; what somebody writes is not."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from paceline.engine.data.partial_file import part_of

WRITES = """
import os, signal, sys
from pathlib import Path
from paceline.engine.data.partial_file import part_of
with part_of(Path(sys.argv[1])) as (out, part):
    out.write(b"half")
    out.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_has_left_goes_and_what_is_being_written_stays(
    tmp_path: Path,
) -> None:
    killed = subprocess.run([sys.executable, "-c", WRITES, str(tmp_path / "a[1]")], timeout=60)
    assert killed.returncode == -signal.SIGKILL
    (left,) = tmp_path.glob("*.part")
    with part_of(tmp_path / "a[1]") as (_, mine):
        assert not left.exists()
        with part_of(tmp_path / "a[1]") as (out, other):
            out.write(b"whole")
            out.flush()
            other.rename(tmp_path / "a[1]")
        assert sorted(tmp_path.iterdir()) == sorted([mine, tmp_path / "a[1]"])
    assert (tmp_path / "a[1]").read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [tmp_path / "a[1]"]
