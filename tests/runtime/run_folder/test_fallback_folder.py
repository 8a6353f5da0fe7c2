"""Where a result goes when the folder of its run takes none; real file systems refuse it, not doubles."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import pytest

from paceline.launch.local.train import Silent
from paceline.observe.runs.summary import read_summary
from paceline.runtime.run_folder import fallback_folder
from tests.runtime.conftest import Runner
from tests.runtime.one_process import config_for, saved


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def text(path: Path) -> None:
    path.write_text("result")


def refusing(tmp_path: Path) -> Path:
    """A folder that is none, so that root cannot write into it either."""
    (tmp_path / "out").write_text("")
    return tmp_path / "out"


def test_a_folder_that_can_be_written_has_the_file_and_nothing_is_said(tmp_path: Path, temporary: Path) -> None:
    assert fallback_folder.put(tmp_path, "a", "token", text) == ""
    assert (tmp_path / "a").read_text() == "result"
    assert list(temporary.iterdir()) == []


def test_another_folder_takes_what_the_first_one_refuses_and_is_named(tmp_path: Path, temporary: Path) -> None:
    out = refusing(tmp_path)
    lines = [fallback_folder.put(out, name, "token", text) for name in "ab"]
    (folder,) = temporary.iterdir()
    assert lines == [f"{name} is in {folder}, as {out} cannot be written: Not a directory" for name in "ab"]
    assert fallback_folder.found("a", "token") == folder / "a"
    assert fallback_folder.found("a", "of another run") is None
    assert folder.stat().st_mode & 0o777 == 0o700
    assert "token" not in folder.name


@pytest.mark.parametrize("squat", ["open to all", "link"])
def test_a_folder_of_that_name_that_others_could_have_made_is_not_used(
    tmp_path: Path, temporary: Path, squat: str
) -> None:
    out = refusing(tmp_path)
    fallback_folder.put(out, "a", "token", text)
    (folder,) = temporary.iterdir()
    shutil.rmtree(folder)
    if squat == "link":
        folder.symlink_to(tmp_path)
    else:
        folder.mkdir()
        folder.chmod(0o777)
    line = fallback_folder.put(out, "a", "token", text)
    elsewhere = fallback_folder.found("a", "token")
    assert elsewhere is not None
    try:
        assert str(elsewhere.parent) in line
        assert elsewhere.parent != folder
    finally:
        shutil.rmtree(elsewhere.parent)


def test_where_no_folder_takes_it_the_first_cause_is_raised_and_nothing_stays(tmp_path: Path, temporary: Path) -> None:
    def full(path: Path) -> NoReturn:
        raise OSError(28, f"No space left for {path.parent.name}")

    with pytest.raises(OSError, match="No space left for out"):
        fallback_folder.put(tmp_path / "out", "a", "token", full)
    assert list(temporary.iterdir()) == []


class Removing(Silent):
    """A user who puts a file where the folder of the run was, once training has begun."""

    def __init__(self, out: Path) -> None:
        self._out, self.lines = out, list[str]()

    def begin(self, lines: Any) -> None:
        self.lines += lines
        if self._out.is_dir():
            shutil.rmtree(self._out)
            self._out.write_text("")


def test_a_run_whose_folder_is_gone_ends_with_model_and_summary(threads: Runner, out: Path, temporary: Path) -> None:
    view = Removing(out)
    config = config_for(out, steps=20, checkpoint={"every": 0.02}, evaluation={"every": 0.01}, cluster={"step_ms": 5.0})
    summary = threads(config, view)
    assert summary.reason == "steps"
    (folder,) = temporary.glob("paceline-result-*")
    assert sorted(os.listdir(folder)) == ["model.safetensors", "summary.json"]
    assert read_summary(folder / "summary.json") == summary
    for name in ("model.safetensors", "summary.json"):
        assert [line for line in view.lines if line.startswith(f"{name} is in {folder}")] != []
    shutil.copytree(folder, out.parent / "copy")
    assert saved(config_for(out.parent / "copy", steps=20))
