"""Where runs leave their files when nobody says where."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paceline.cli.main import main
from paceline.config import build
from paceline.core.errors import ConfigError
from paceline.launch.local.train import new_folder, next_folder


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_runs_that_begin_in_the_same_second_have_folders_of_their_own() -> None:
    with ThreadPoolExecutor(16) as pool:
        names = list(pool.map(lambda _: next_folder("bsp"), range(48)))
    assert len(set(names)) == 48
    assert all(Path(name).is_dir() for name in names)


def test_a_folder_is_named_after_the_scheme_or_what_is_run() -> None:
    config = build({"run": {"scheme": "asp"}})
    assert new_folder(config).run.out.endswith("-asp")
    assert new_folder(config, "launch").run.out.endswith("-launch")


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--workers", "0"],
        ["race", "--schemes", "bsp,adpsgd", "--workers", "0"],
        ["race", "--schemes", "bsp,bsp"],
        ["simulate", "--schemes", "bsp,essync"],
        ["simulate", "--scheme", "bsp", "--timing-only", "--target-accuracy", "0.9"],
        ["simulate", "--schemes", "bsp,asp", "--timing-only", "--target-accuracy", "0.9"],
    ],
    ids=" ".join,
)
def test_settings_that_are_refused_leave_no_folder(words: list[str]) -> None:
    assert main(words) == 2
    assert not Path("runs").exists()


@pytest.mark.parametrize("command", ["train --scheme bsp", "race --schemes bsp,asp"])
@pytest.mark.parametrize(
    ("made", "words"),
    [
        ("3", "returned a int, not a torch.nn.Module"),
        ("torch.nn.Linear(63, 10)", "mat1 and mat2 shapes cannot be multiplied"),
        ("torch.nn.Linear(64, 10).double()", "parameter weight is torch.float64"),
        ("unknown()", "NameError: name 'unknown' is not defined"),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused_before_a_process_starts(
    command: str, made: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.py").write_text(f"import torch\ndef net():\n    print('made')\n    return {made}\n")
    assert main([*command.split(), "--workers", "2", "--data", "digits", "--model", "own.py:net"]) == 2
    assert not list(Path().glob("runs/*"))
    said = capsys.readouterr()
    assert words in said.err
    assert "made" not in said.out


@pytest.mark.parametrize("words", [["--resume", "elsewhere"], ["--bind", "192.0.2.1"]])
@pytest.mark.parametrize("stands", [False, True])
def test_so_do_those_that_are_refused_with_the_lock_in_hand(words: list[str], stands: bool) -> None:
    made = Path("mine", "deep")
    if stands:
        made.mkdir(parents=True)
    assert main(["train", "--data", "digits", "--workers", "1", "--out", str(made), *words]) == 2
    assert made.exists() == stands == Path("mine").exists()


def test_where_no_folder_can_be_made_one_line_says_so() -> None:
    Path("runs").write_text("a file")
    with pytest.raises(ConfigError, match="name a folder that can be made with --out"):
        next_folder("bsp")
