"""A leader in a session of its own: how its beginning and its early end are told."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from paceline.core.errors import ConfigError
from paceline.launch.detached.leader import CONSOLE, has_begun, start_leader
from paceline.runtime.run_folder.status_file import STARTING, STATUS, StatusFile, read_status


def test_a_leader_that_ends_at_once_is_shown_and_leaves_no_folder(tmp_path: Path) -> None:
    out, said = tmp_path / "run", list[str]()
    out.mkdir()
    assert start_leader(["no-such-verb"], str(out), said.append) == 2
    assert said[0] == f"{out}: starting ..."
    assert said[1].startswith("paceline: unknown verb 'no-such-verb'")
    assert not out.exists()


def test_a_folder_with_earlier_files_is_kept(tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    assert start_leader(["no-such-verb"], str(tmp_path), lambda line: None) == 2
    assert (tmp_path / CONSOLE).read_text().startswith("paceline: unknown verb")


def test_a_folder_that_takes_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--detach: .*No such file"):
        start_leader(["--version"], str(tmp_path / "absent"), lambda line: None)


def test_a_run_has_begun_when_its_own_leader_says_so(tmp_path: Path) -> None:
    assert not has_begun(str(tmp_path), os.getpid())
    StatusFile(tmp_path, "bsp").write(STARTING)
    assert not has_begun(str(tmp_path), os.getpid())
    StatusFile(tmp_path, "bsp").write("training")
    assert has_begun(str(tmp_path), os.getpid())
    before = msgspec.structs.replace(read_status(tmp_path), pid=1)  # of the incarnation that is resumed
    (tmp_path / STATUS).write_bytes(msgspec.json.encode(before))
    assert not has_begun(str(tmp_path), os.getpid())
