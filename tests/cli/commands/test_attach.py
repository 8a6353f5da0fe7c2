"""`--detach` and `paceline attach`: a run goes on without its terminal, and its output is seen from anywhere."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from paceline.cli.commands.attach import start_of_last_lines
from paceline.cli.main import main
from paceline.launch.detached.leader import CONSOLE
from paceline.observe.runs.summary import read_summary
from paceline.runtime.run_folder.status_file import read_status
from tests.cli.commands.runs import a_status, told
from tests.cli.conftest import Paceline, refused_here

Capture = pytest.CaptureFixture[str]

pytestmark = pytest.mark.skipif(not Path("/proc/1/stat").exists(), reason="reads /proc")


def test_a_run_that_was_not_detached_is_refused(here: Path, capsys: Capture) -> None:
    a_status(here / "a", state="over")
    assert "runs/a was not started with --detach" in refused_here(capsys, "attach", "a")


def test_the_output_is_shown_from_its_beginning_or_its_last_lines(here: Path, capsys: Capture) -> None:
    a_status(here / "a", state="over", born="another boot")
    (here / "a" / CONSOLE).write_bytes("one\ntwo\nth\u00e9 end".encode() + b"\xff")
    assert told(capsys, "attach", "a") == "one\ntwo\nth\u00e9 end\ufffd"
    assert told(capsys, "attach", "a", "--tail", "2") == "two\nth\u00e9 end\ufffd"
    assert told(capsys, "attach", "a", "--tail", "0") == ""
    assert "--tail x: a number of lines" in refused_here(capsys, "attach", "a", "--tail", "x")


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        ({"state": "over"}, 0, ""),
        ({"state": "failed"}, 1, ""),
        ({"state": "training"}, 1, "was killed; a run with checkpoints goes on by the same command with --resume auto"),
    ],
)
def test_the_exit_code_says_how_the_run_ended(
    status: dict[str, str], code: int, said: str, here: Path, capsys: Capture
) -> None:
    a_status(here / "a", born="another boot", **status)
    (here / "a" / CONSOLE).touch()
    assert main(["attach", "a"]) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("lines", "rest"), [(0, b""), (1, b"c"), (2, b"b\nc"), (3, b"a\nb\nc"), (9, b"a\nb\nc")])
def test_the_last_lines_begin_after_a_line_feed(lines: int, rest: bytes, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"a\nb\nc")
    assert file.read_bytes()[start_of_last_lines(file, lines) :] == rest


def has_checkpoint(run: Path) -> bool:
    """Returns True once there is one, or False after a minute."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        if any(run.glob("checkpoints/*/manifest.json")):
            return True
        threading.Event().wait(0.1)
    return False


def test_a_killed_leader_is_seen_and_resumed_without_a_terminal(paceline: Paceline, tmp_path: Path) -> None:
    words = ("train", "--detach", "--out", "run", "--workers", "2", "--step-ms", "5", "--checkpoint-every", "0.3")
    begun = paceline(*words, "--total-samples", "1000000")
    assert begun.returncode == 0, begun.stderr
    leader = read_status(tmp_path / "run").pid
    assert os.getsid(leader) == leader  # a session of its own: no terminal's end reaches it
    assert has_checkpoint(tmp_path / "run")
    os.kill(leader, signal.SIGKILL)
    gone = paceline("attach", "run")
    assert gone.returncode == 1
    assert "was killed" in gone.stderr
    resumed = paceline(*words, "--resume", "auto", "--seconds", "1")
    assert resumed.returncode == 0, resumed.stderr
    seen = paceline("attach", "run")
    assert seen.returncode == 0, seen.stderr
    assert "ended by: seconds" in seen.stdout
    assert seen.stdout.count("security: ") == 2  # of both leaders
    assert read_summary(tmp_path / "run" / "summary.json").reason == "seconds"
