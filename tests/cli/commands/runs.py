"""Runs that `status`, `kill` and `logs` look at."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from paceline.cli.main import main
from paceline.runtime.run_folder.status_file import STATUS, StatusFile, read_status

Capture = pytest.CaptureFixture[str]


def told(capsys: Capture, *words: str, code: int = 0) -> str:
    """What it prints: on stdout when all is well, or else the one line on stderr."""
    assert main(words) == code
    out, err = capsys.readouterr()
    return (out if code == 0 or not err else err).strip()


def a_status(folder: Path, **changes: object) -> None:
    """Of a run that this process leads, but for `changes`."""
    folder.mkdir(exist_ok=True)
    StatusFile(folder, "bsp").write("training")
    status = msgspec.structs.replace(read_status(folder), **changes)
    (folder / STATUS).write_bytes(msgspec.json.encode(status))
