"""A lock of an open file: one holder at a time, released with it, and told apart from a system without locks."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path
from typing import Any

import pytest

from paceline.core.files import file_lock
from paceline.core.files.file_lock import try_lock


def test_one_open_file_at_a_time_holds_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as first, path.open("ab") as second:
        assert try_lock(first.fileno()) is True
        assert try_lock(second.fileno()) is False
        first.close()
        assert try_lock(second.fileno()) is True


@pytest.mark.parametrize("number", file_lock.WITHOUT_LOCKS)
def test_a_file_system_without_locks_is_no_failure(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: Any) -> None:
        raise OSError(number, "no locks")

    monkeypatch.setattr(fcntl, "flock", flock)
    with (tmp_path / "file").open("wb") as file:
        assert try_lock(file.fileno()) is None


def test_any_other_failure_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: Any) -> None:
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr(fcntl, "flock", flock)
    with (tmp_path / "file").open("wb") as file, pytest.raises(OSError, match="broken disk"):
        try_lock(file.fileno())


def test_a_system_without_fcntl_has_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_lock, "fcntl", None)
    with (tmp_path / "file").open("wb") as file:
        assert try_lock(file.fileno()) is None
