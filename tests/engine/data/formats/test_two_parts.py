"""Which entry of a folder is trained on, and which is tested on."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from paceline.engine.data.formats.two_parts import two_parts


def made(folder: Path, *names: str) -> str:
    for name in names:
        (folder / name).mkdir()
    return str(folder)


def test_the_names_say_it(tmp_path: Path) -> None:
    found = two_parts(made(tmp_path, "ilsvrc12_train_lmdb", "ilsvrc12_val_lmdb", "other"), "an LMDB", Path.is_dir)
    assert [path.name for path in found] == ["ilsvrc12_train_lmdb", "ilsvrc12_val_lmdb"]


def test_what_is_missing_or_there_twice_is_refused_with_what_there_is(tmp_path: Path) -> None:
    directory = made(tmp_path, "train")
    with pytest.raises(ConfigError, match="an LMDB with 'test' or 'val' in its name, once; it has train"):
        two_parts(directory, "an LMDB", Path.is_dir)
    made(tmp_path, "test", "val")
    with pytest.raises(ConfigError, match="once; it has test, val"):
        two_parts(directory, "an LMDB", Path.is_dir)


def test_no_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give --data-dir the folder with an LMDB"):
        two_parts("", "an LMDB", Path.is_dir)
    with pytest.raises(ConfigError, match="no such folder on this machine"):
        two_parts(str(tmp_path / "nowhere"), "an LMDB", Path.is_dir)
