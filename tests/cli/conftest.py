from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paceline.cli.main import main

Capture = pytest.CaptureFixture[str]
Paceline = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def paceline(tmp_path: Path) -> Paceline:
    """`paceline WORDS...` as a user in a terminal of 80 columns, in a folder of the test's own."""

    def run(*words: str, timeout: float = 90.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "paceline", *words],
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "80"},
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run


def refused_here(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line on stderr of a command that is wrong, without the second a new interpreter takes."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1, err
    return err.strip()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"
