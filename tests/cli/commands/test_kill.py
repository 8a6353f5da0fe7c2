"""`paceline kill` ends a run with all its processes, and nobody else."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.cli.commands import kill
from paceline.core.files.own_path import steers
from paceline.runtime.run_folder.status_file import STATUS, starting
from tests.cli.commands.runs import a_status, told
from tests.cli.conftest import refused_here
from tests.launch.process_tree import within

Capture = pytest.CaptureFixture[str]


pytestmark = pytest.mark.skipif(not Path("/proc/1/stat").exists(), reason="reads /proc")


STUBBORN = """
import signal, sys, threading
from pathlib import Path
from paceline.cli.commands import kill
from paceline.runtime.run_folder.status_file import StatusFile
signal.signal(signal.SIGTERM, lambda *_: None)
Path(sys.argv[1]).mkdir()
StatusFile(Path(sys.argv[1]), "bsp").write("training")
while True:
    threading.Event().wait(60)
"""


def test_one_that_does_not_end_is_told_so_and_ends_by_force_and_nobody_else_does(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, waited, sent = kill._send, kill._waited, list[int]()

    def noted(leader: int, number: signal.Signals) -> bool:
        sent.append(number)
        return send(leader, number)

    monkeypatch.setattr(kill, "_send", noted)
    monkeypatch.setattr(kill, "_waited", lambda leader, _: waited(leader, 60.0 if signal.SIGKILL in sent else 0.1))
    two = [subprocess.Popen([sys.executable, "-c", STUBBORN, str(here / name)]) for name in ("one", "other")]
    try:
        assert within(60, lambda: all((here / name / STATUS).exists() for name in ("one", "other")))
        assert "still ending; once more ends it at once" in told(capsys, "kill", "one", code=1)
        assert told(capsys, "kill", "one", "--force") == "runs/one has ended: at once"
        assert sent == [signal.SIGTERM] * 3 + [signal.SIGKILL]
        assert two[0].wait(10) == -signal.SIGKILL
        assert "gone: process" in told(capsys, "status", "one", code=1)
        assert two[1].poll() is None
    finally:
        for process in two:
            process.kill()
            process.wait()


STARTS = """
import sys, threading
from paceline.cli.support.run_and_report import _signals, ending_in_order
from paceline.cli.commands import kill
from paceline.runtime.run_folder.status_file import starting
with ending_in_order(), starting(sys.argv[1], "bsp"):
    threading.Event().wait(60)
"""


def test_a_run_that_has_not_begun_is_ended_and_leaves_nothing(here: Path, capsys: Capture) -> None:
    one = subprocess.Popen([sys.executable, "-c", STARTS, str(here / "one")])
    try:
        assert within(60, lambda: (here / "one" / STATUS).exists())
        assert told(capsys, "kill", "one") == "runs/one has ended: before it began"
        assert one.wait(10) == 143
        assert not (here / "one").exists()
    finally:
        one.kill()
        one.wait()


def test_a_run_of_a_user_whose_files_its_group_can_write_can_be_ended(here: Path) -> None:
    before = os.umask(0o002)
    try:
        with starting(str(here / "run"), "bsp"):
            assert steers(here / "run" / "status.json")
    finally:
        os.umask(before)


def test_nobody_is_ended_by_a_copy_from_elsewhere_or_within_a_program_that_does_not_listen(
    here: Path, capsys: Capture
) -> None:
    a_status(here / "a", listens=True)
    shutil.copytree(here / "a", here / "b")
    assert "runs/b is a copy of" in refused_here(capsys, "kill", "b")
    for others_write in (here / "e" / "status.json", here / "e"):
        a_status(here / "e", listens=True)
        before = others_write.stat().st_mode
        others_write.chmod(0o777)
        assert "others may have written it" in refused_here(capsys, "kill", "e")
        others_write.chmod(before)
    a_status(here / "c", listens=True, host="another")
    assert "run `paceline kill` there" in refused_here(capsys, "kill", "c")
    assert "led from another" in told(capsys, "status", "c")
    a_status(here / "d", listens=False)
    assert "part of a program" in refused_here(capsys, "kill", "d")
