"""Folders of processes that were killed are removed by the next one; nobody else's are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.live.same_host.temporary_folder import OWNER, TemporaryFolder, sweep

MAKES_ONE = """
import time
from paceline.live.same_host.temporary_folder import TemporaryFolder
folder = TemporaryFolder("keys")
open(folder.name + "/key", "w").write("secret")
print(folder.name, flush=True)
time.sleep(600)
"""


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def other(room: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process, and the folder that it has."""
    command = [sys.executable, "-c", MAKES_ONE]
    with subprocess.Popen(
        command, env={**os.environ, "TMPDIR": str(room)}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_the_folder_of_a_killed_process_goes_and_that_of_a_living_one_stays(
    room: Path, other: tuple[subprocess.Popen[str], Path]
) -> None:
    process, folder = other
    assert sweep(room) == []
    assert (folder / "key").exists()
    process.send_signal(signal.SIGKILL)
    process.wait()
    with TemporaryFolder() as own:
        assert not folder.exists()
        assert Path(own).stat().st_mode & 0o777 == 0o700
        assert sweep(room) == []
    assert not Path(own).exists()


def test_what_has_no_lock_or_is_a_link_or_of_another_name_stays(room: Path) -> None:
    results, elsewhere, link = room / "paceline-result-x", room / "elsewhere", room / "paceline-link"
    for folder in (results, elsewhere):
        folder.mkdir()
    (elsewhere / OWNER).touch()
    link.symlink_to(elsewhere)
    (room / "paceline-file").touch()
    assert sweep(room) == []
    (results / OWNER).symlink_to(elsewhere / OWNER)
    assert sweep(room) == []
    assert elsewhere.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_a_folder_of_another_user_stays(room: Path) -> None:
    folder = room / "paceline-theirs"
    folder.mkdir()
    (folder / OWNER).touch()
    os.chown(folder, 65534, 65534)
    assert sweep(room) == []
    os.chown(folder, 0, 0)
    assert sweep(room) == [folder]
