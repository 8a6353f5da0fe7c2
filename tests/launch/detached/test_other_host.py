"""A leader on another host: what ssh is told, what is kept here, and what is refused. ssh is a stand-in."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from paceline.cli.main import main
from paceline.launch.detached.leader_pointer import leader_host

Capture = pytest.CaptureFixture[str]
SSH = """#!/bin/sh
printf '%s\\n' "$@" > {folder}/told
exit $(cat {folder}/code)
"""


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `told`, the arguments that ssh was given; ssh returns the number in `code`."""
    (tmp_path / "ssh").write_text(SSH.format(folder=tmp_path))
    (tmp_path / "ssh").chmod(0o755)
    (tmp_path / "code").write_text("0")
    (tmp_path / "hosts").write_text("h1\nh2:2222 user=ada python=/opt/python folder=/data\n")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def launch(*words: str) -> int:
    return main(["launch", "-H", "hosts", *words, "python", "train.py", "--leader", "x"])


def test_the_host_is_told_the_same_command_with_a_folder(ssh: Path) -> None:
    assert launch("--detach", "--leader", "h2", "-n", "3") == 0
    told = (ssh / "told").read_text().splitlines()
    assert told[-2:][0] == "h2"
    assert {"-p", "2222", "-l", "ada"} <= set(told)
    (folder,) = (ssh / "runs").iterdir()
    out = f"runs/{folder.name}"
    command = f"launch --detach --out {out} -H hosts -n 3 python train.py --leader x"
    assert told[-1] == f"cd /data && exec /opt/python -m paceline {command}"
    leader = leader_host(folder)
    assert leader is not None
    assert (leader.host, leader.out, leader.folder, leader.user) == ("h2", out, "/data", "ada")


def test_a_host_that_no_file_names_is_reached_by_its_name(ssh: Path) -> None:
    assert launch("--detach", "--leader=h3", "--out", "mine") == 0
    told = (ssh / "told").read_text().splitlines()
    assert told[-2] == "h3"
    assert told[-1].startswith(f"cd {ssh} && exec {sys.executable} -m paceline launch --detach -H hosts --out mine")
    assert leader_host(ssh / "mine") is not None


def test_a_run_that_was_refused_there_leaves_nothing_here(ssh: Path) -> None:
    (ssh / "code").write_text("2")
    assert launch("--detach", "--leader", "h2") == 2
    assert not (ssh / "runs").exists()


def test_a_failed_login_and_a_leader_without_detach_say_the_way_out(ssh: Path, capsys: Capture) -> None:
    (ssh / "code").write_text("255")
    assert launch("--detach", "--leader", "h2") == 2
    assert "h2: ssh could not log in there; `ssh -T" in capsys.readouterr().err
    assert launch("--leader", "h2") == 2
    assert "--leader h2: goes with --detach" in capsys.readouterr().err
