"""The flags of engines: dry runs, and mistakes told in one line."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from paceline.cli.main import main
from paceline.cli.support import engine_launch
from paceline.core.errors import ConfigError


@pytest.mark.parametrize("launcher", ["mpi", "slurm", "sge", "ray", "torchrun"])
def test_a_dry_run_prints_the_command_and_starts_nothing(
    launcher: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["launch", "--launcher", launcher, "-n", "3", "-i", "127.0.0.1", "--dry-run", "paceline", "train"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "paceline.launch.remote.agent --dial" in out
    assert "3 agents" in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--launcher sge -H hosts", "Grid Engine chooses hosts itself"),
        ("--launcher yarn -H hosts", "YARN chooses hosts itself"),
        ("--launcher yarn", "needs the distributed shell's jar"),
        ("--launcher yarn --launcher-args memory=1G", "memory=1G: a whole number of MiB"),
        ("--launcher torchrun -H hosts", "torchrun starts processes here"),
        ("--launcher ray -H hosts", "Ray chooses hosts itself"),
        ("--launcher ray --launcher-args strategy=FAST", "write address=HOST:PORT, strategy=SPREAD|"),
        ("--launcher ray --launcher-args server.label=cpu", "write address=HOST:PORT, strategy=SPREAD|"),
        ("--launcher torchrun --control", "--control: the controls are on the page; give --watch too"),
        ("--launcher mpi --alert-hook /nowhere/at/all", "--alert-hook /nowhere/at/all: there is no such program"),
        ("--launcher mpi --sync-dir /tmp/x", "--sync-dir is for --launcher ssh"),
        ("--launcher mpi --launcher-args '", "--launcher-args: No closing quotation"),
        ("--launcher mpi --start-timeout soon", "--start-timeout soon: a number of seconds above 0"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    words: str, expected: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hosts").write_text("h1\n")
    assert main(["launch", "-i", "127.0.0.1", *words.split(), "paceline", "train"]) == 2
    err = capsys.readouterr().err
    assert expected in err
    assert len(err.splitlines()) == 1, err


def test_under_an_engine_a_run_has_its_page_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def page(options: argparse.Namespace, run: str) -> None:
        raise ConfigError(f"the page of {run}: {options.watch}, {options.alert_hook}, {options.control}")

    monkeypatch.setattr(engine_launch, "page", page)
    out = str(tmp_path / "run")
    words = ["launch", "--launcher", "torchrun", "-i", "127.0.0.1", "--watch", "--alert-hook", "true", "--out", out]
    assert main([*words, "paceline", "train", "--control"]) == 2
    assert f"the page of {out}: True, true, True" in capsys.readouterr().err
