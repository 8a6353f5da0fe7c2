"""A benchmark of public scripts leaves no process behind, however it ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "scripts"
SHARED = """
import os, signal, sys
from pathlib import Path
from commands import end_on_signals, output_to_end
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background of a shell
end_on_signals()
print(output_to_end(["sh", "-c", sys.argv[1]], Path("."), dict(os.environ), float(sys.argv[2])), end="")
"""
HANG = "echo $$ > started && mv started pid && exec sleep 600"


def benchmark(folder: Path, command: str, seconds_max: float) -> subprocess.Popen[str]:
    """A script that runs a command as run.py does."""
    environment = {**os.environ, "PYTHONPATH": str(FOLDER)}
    return subprocess.Popen(
        [sys.executable, "-c", SHARED, command, str(seconds_max)],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def opened(folder: Path, run: subprocess.Popen[str]) -> int:
    """Returns a file descriptor of the command, once it runs."""
    while not (folder / "pid").exists():
        assert run.poll() is None, run.communicate()
        threading.Event().wait(0.01)
    return os.pidfd_open(int((folder / "pid").read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux ends a child with its parent")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
def test_the_command_of_a_benchmark_that_a_signal_ends_has_ended(tmp_path: Path, number: signal.Signals) -> None:
    run = benchmark(tmp_path, HANG, 600)
    command = opened(tmp_path, run)
    run.send_signal(number)
    run.communicate(timeout=60)
    assert select.select([command], [], [], 30)[0], "the command goes on"
    os.close(command)


def test_a_command_that_takes_too_long_is_ended_and_named(tmp_path: Path) -> None:
    run = benchmark(tmp_path, HANG, 5)
    command = opened(tmp_path, run)
    errors = run.communicate(timeout=60)[1]
    assert select.select([command], [], [], 0)[0], "the command goes on"
    os.close(command)
    assert run.returncode == 1
    assert errors.splitlines() == [f"sh -c {HANG} in .: has not ended within 5 s"]


def test_what_a_command_prints_is_returned_and_a_failure_shown(tmp_path: Path) -> None:
    ended = benchmark(tmp_path, "echo loss 3; echo so far >&2", 60)
    assert ended.communicate(timeout=60) == ("so far\n\nloss 3\n", "")
    failed = benchmark(tmp_path, "echo before; exit 7", 60)
    assert failed.communicate(timeout=60) == ("before\n\n\n", "sh -c echo before; exit 7 in .: exit code 7\n")
