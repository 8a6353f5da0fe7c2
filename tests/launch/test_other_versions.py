"""A process of another version comes to a run that trains: it is said in one line, and the run goes on."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launch.forked_cli import Warm
from tests.launch.process_tree import comm, descendants, within

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")

WAIT_SECONDS = 60.0
SCRIPT = """
import os, sys
from paceline.live.protocol import frames

def other_version() -> None:  # of the processes that start while the file is there
    if os.path.exists("OTHER"):
        frames.VERSION += 1

os.register_at_fork(after_in_child=other_version)
from paceline.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


class UpgradedRun:
    """A `paceline train` in a folder where a file OTHER gives processes that start another version."""

    def __init__(self, warm: Warm, folder: Path) -> None:
        self._file, self.out = folder / "OTHER", folder / "run"
        script = folder / "train.py"
        script.write_text(SCRIPT)
        words = ["train", "--out", str(self.out), "--epochs", "0", "--seconds", "300", "--scheme", "bsp"]
        words += ["--workers", "2", "--servers", "2", "--ack", "replica", "--step-ms", "10", "--checkpoint-every", "0"]
        self.process = warm.python(script, *words, folder=folder)
        self.errors = self.process.stderr
        os.set_blocking(self.errors.fileno(), False)
        self.said = ""
        trace = self.out / "trace.jsonl"
        assert within(WAIT_SECONDS, lambda: trace.exists() and trace.read_text().count('"applied"') > 20), self.read()

    def read(self) -> str:
        """Returns all that it has said on stderr."""
        with contextlib.suppress(BlockingIOError):
            while more := os.read(self.errors.fileno(), 1 << 16):
                self.said += more.decode()
        return self.said

    def says(self, words: str) -> None:
        assert within(WAIT_SECONDS, lambda: words in self.read()), self.said

    def replaces(self, name: str) -> None:
        """Kills a party, whose next processes are of another version."""
        self._file.touch()
        [pid] = [pid for pid in descendants(self.process.pid) if comm(pid) == f"pace {name}"]
        os.kill(pid, signal.SIGKILL)

    def put_right(self) -> None:
        """Lets the next processes have the version of the run."""
        self._file.unlink()

    def close(self) -> None:
        for pid in (*descendants(self.process.pid), self.process.pid):
            os.kill(pid, signal.SIGKILL)
        self.process.wait(10)
        self.process.stdout.close()
        self.errors.close()


@pytest.fixture
def run(warm: Warm, tmp_path: Path) -> Iterator[UpgradedRun]:
    found = UpgradedRun(warm, tmp_path)
    yield found
    found.close()


@pytest.mark.parametrize(
    ("name", "returns", "pause"),
    [("worker 1", "is back: incarnation", 30), ("server 1", "was replaced: restored from its copy", 8)],
)
def test_a_replacement_of_another_version_is_refused_in_one_line_until_the_right_one_comes(
    name: str, returns: str, pause: int, run: UpgradedRun
) -> None:
    run.replaces(name)
    run.says(f"install one version of paceline on all hosts (log: {run.out}")
    run.says(f"it is tried again, after pauses of up to {pause} s")
    run.put_right()
    run.says(returns)
    lines = [line for line in run.said.splitlines() if line.startswith(f"{name} (pid")]
    assert len(lines) == 1, lines
    assert "the other side speaks protocol version 2, this side 3" in lines[0]
    assert run.process.poll() is None
