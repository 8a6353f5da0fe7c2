"""The unit: what systemd reads of it, word by word, and what it would refuse."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from paceline.launch.detached.systemd_unit import quoted, write_unit


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("plain", '"plain"'),
        ("two words", '"two words"'),
        ('a "b"', '"a \\"b\\""'),
        ("back\\slash", '"back\\\\slash"'),
        ("100%", '"100%%"'),
        ("$HOME", '"$$HOME"'),
    ],
)
def test_what_systemd_would_expand_is_escaped(word: str, written: str) -> None:
    assert quoted(word, command=True) == written


def test_a_dollar_stays_as_it_is_in_an_environment() -> None:
    assert quoted("PATH=$x") == '"PATH=$x"'


def test_a_control_character_and_another_suffix_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="control character"):
        quoted("a\nExecStart=/bin/sh")
    with pytest.raises(ConfigError, match=r"ends in \.service"):
        write_unit(tmp_path / "run.unit", ["train"], "runs/a")
    with pytest.raises(ConfigError, match="--write-unit .*No such file"):
        write_unit(tmp_path / "absent" / "run.service", ["train"], "runs/a")


def test_the_unit_starts_the_command_again_after_a_failure_but_not_after_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    unit = tmp_path / "run.service"
    write_unit(unit, ["train", "--out", "runs/a b", "--resume", "auto"], "runs/a b")
    lines = unit.read_text().splitlines()
    assert f'ExecStart="{sys.executable}" "-P" "-m" "paceline" "train" "--out" "runs/a b" "--resume" "auto"' in lines
    assert f"WorkingDirectory={tmp_path}" in lines
    assert "Restart=on-failure" in lines
    assert "RestartPreventExitStatus=2 129 130 143" in lines
    assert f"StandardOutput=append:{tmp_path}/runs/a b/console.log" in lines


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit_without_a_complaint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    unit = tmp_path / "run.service"
    write_unit(unit, ["launch", "--out", "100% $mine", "python", "my train.py"], "100% $mine")
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    ours = [line for line in done.stderr.splitlines() if "run.service" in line or str(unit) in line]
    assert ours == []
