"""Files of a folder that somebody else has made: none makes a verb wait, follow a link or fill the memory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.cli.main import main
from paceline.core.files.regular_file import open_regular, read_regular
from paceline.observe.watch.panels.log_tail import log_tail
from paceline.observe.watch.panels.run_list import RunList


def as_fifo(path: Path) -> None:
    os.mkfifo(path)


def as_link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def as_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 33)


def as_folder(path: Path) -> None:
    path.mkdir()


BROKEN: list[Callable[[Path], None]] = [as_fifo, as_link, as_large, as_folder]


def test_a_regular_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    assert read_regular(tmp_path / "file", 3) == b"abc"
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"abc"
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none")


@pytest.mark.parametrize("broken", BROKEN)
def test_nothing_else_is(tmp_path: Path, broken: Callable[[Path], None]) -> None:
    broken(tmp_path / "file")
    with pytest.raises(OSError):
        read_regular(tmp_path / "file")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    words = "simulate --scheme asp --workers 2 --step-ms 10 --timing-only --seconds 1 --epochs 0"
    assert main([*words.split(), "--out", str(out)]) == 0
    return out


FILES = ["config.toml", "summary.json", "trace.jsonl", "status.json", "leader.json", "console.log", "logs/worker-0.log"]
VERBS = ["status", "summary", "logs", "attach", "kill", "grow", "plot", "export"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("name", FILES)
def test_no_file_of_a_runs_folder_makes_a_verb_wait_or_fail_without_a_line(
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    broken: Callable[[Path], None],
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    (folder / "logs").mkdir(exist_ok=True)
    (folder / name).unlink(missing_ok=True)
    broken(folder / name)
    for verb in VERBS:
        try:
            code = main([verb, str(folder)])
        except SystemExit as error:
            code = int(error.code or 0)
        assert code in (0, 1, 2)
        assert "Traceback" not in capsys.readouterr().err
    log_tail(folder, "worker-0", 10)
    RunList().rows(folder)
    RunList().curves(folder, ["run"])
