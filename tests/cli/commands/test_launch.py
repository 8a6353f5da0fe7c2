"""What `paceline launch` refuses before anything starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from paceline.cli.commands.launch import main
from paceline.core.errors import ConfigError


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_folder_whose_name_is_no_utf_8_is_refused_in_one_line_and_not_made(tmp_path: Path, more: list[str]) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("198.51.100.7\n")
    out = os.fsdecode(os.fsencode(tmp_path) + b"/a\xff")
    with pytest.raises(ConfigError, match=r"--out .*/a\\xff: with several hosts the name .* must be UTF-8$"):
        main(["--workers", "1", "--hosts", str(hosts), "--bind", "127.0.0.1", "--out", out, *more, "--", "true"])
    assert [path.name for path in tmp_path.iterdir()] == ["hosts"]


@pytest.mark.parametrize("words", [["paceline"], ["/some/bin/paceline"], [sys.executable, "-m", "paceline"]])
def test_paceline_itself_is_no_script_however_it_is_named(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="of Paceline's own commands `paceline train` can be launched"):
        main([*words, "race"])
    with pytest.raises(ConfigError, match="unknown option --no-such"):
        main([*words, "train", "--no-such", "1"])


@pytest.mark.parametrize("words", [["python"], ["python3", "-"], ["python", "-W", "ignore", "-u", "-", "--lr", "1"]])
def test_a_script_on_standard_input_is_refused_with_the_way_out(words: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"standard input can be read once: write the script to a file$"):
        main(words)


@pytest.mark.parametrize("name", ["paceline.py", "paceline/__init__.py"])
@pytest.mark.parametrize("words", [["train.py"], ["-c", "import paceline"], ["-X", "dev", "-m", "train"]])
def test_what_a_script_would_import_in_place_of_paceline_is_named(
    name: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    with pytest.raises(ConfigError, match=r"`import paceline` would import this (file|folder): give it another name$"):
        main(["python", *words])
    main(["--dry-run", "python", "-P", *words])


def test_a_script_of_another_folder_may_stand_beside_a_file_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paceline.py").touch()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").touch()
    assert main(["--dry-run", "python", "src/train.py"]) == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ["--torch-distributed", "auto", "-H", "{hosts}", "true"],
            "is for one machine: name the host of worker 0",
        ),
        (["--torch-distributed", "auto", "--launcher", "mpi", "true"], "auto is for one machine"),
        (["--torch-distributed", "gpu1", "true"], "must be none, auto, or the host of worker 0 and a free port"),
        (["--torch-distributed", "auto", "--ranks", "2", "true"], "--ranks have a group of their own already"),
        (["--torch-distributed", "auto", "paceline", "train"], "is for a script of yours"),
    ],
)
def test_a_group_that_cannot_meet_is_refused(words: list[str], why: str, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("198.51.100.7\n")
    with pytest.raises(ConfigError, match=why):
        main([word.format(hosts=hosts) for word in words])
