"""A file steers where this user owns it and its folder, and nobody else can write either."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paceline.core.files.own_path import steers


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "folder" / "file"
    made.parent.mkdir(mode=0o755)
    made.touch(0o644)
    os.chown(made, os.geteuid(), os.getegid())
    return made


def test_a_file_of_ones_own_steers(file: Path) -> None:
    assert steers(file)
    assert not steers(file.parent)
    assert not steers(file.parent / "other")


@pytest.mark.parametrize("mode", [0o646, 0o666, 0o602])
def test_not_what_everybody_can_write(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert not steers(file)
    file.chmod(0o644)
    file.parent.chmod(0o757)
    assert not steers(file)


def test_a_group_that_is_the_users_own_is_no_other(file: Path) -> None:
    file.chmod(0o664)
    assert steers(file) == (file.stat().st_gid == file.stat().st_uid)


def test_not_a_link_nor_what_another_user_owns(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file.parent / "link").symlink_to(file)
    assert not steers(file.parent / "link")
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    assert not steers(file)
