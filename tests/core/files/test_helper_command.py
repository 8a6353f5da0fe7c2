"""Helper processes do not see the current folder; a checkout of Paceline is one that they have to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paceline.core.files.helper_command import ROOT, helper_command, words_on_host

HIDING = ("signal", "types", "queue", "torch/__init__")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with files named like modules that every process of Paceline imports."""
    (tmp_path / "torch").mkdir()
    for name in HIDING:
        (tmp_path / f"{name}.py").write_text(f"raise RuntimeError('the user\\'s own {name}.py')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_helper_imports_the_real_modules(folder: Path) -> None:
    assert "bsp" in ran(*helper_command("paceline", "schemes"))


def test_a_helper_of_another_host_finds_paceline_in_its_folder_and_the_real_modules_first(folder: Path) -> None:
    (folder / "sent.py").write_text("import queue, signal, sys, types\nprint(sys.argv[1:])\n")
    assert ran(sys.executable, *words_on_host("sent"), "--dial", "a b") == "['--dial', 'a b']\n"


def test_a_checkout_that_is_the_current_folder_stays_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert "-P" not in helper_command("paceline")


def test_python_m_paceline_takes_the_folder_off_its_path(folder: Path) -> None:
    (folder / "types.py").unlink()  # Python itself needs it before the first line of ours
    assert "bsp" in ran(sys.executable, "-m", "paceline", "schemes")


def test_a_folder_that_is_gone_hides_nothing(folder: Path) -> None:
    for name in HIDING:
        (folder / f"{name}.py").unlink()
    (folder / "torch").rmdir()
    folder.rmdir()
    assert "-P" in helper_command("paceline")
