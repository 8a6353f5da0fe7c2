"""A run whose folder can be written no more ends with model and summary, elsewhere, and says where."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file

from paceline.observe.runs.summary import read_summary
from tests.launch.file_systems import can_mount, make_read_only
from tests.launch.forked_cli import Command, Warm
from tests.launch.process_tree import within

pytestmark = pytest.mark.skipif(not can_mount(), reason="this user may not mount anything here")

SHORT = "--workers 1 --model mlp --width 0.25 --epochs 0 --seconds 3 --step-ms 5 --eval-every 0.5 --checkpoint-every 1"


def begin(warm: Warm, disk: Path, options: str) -> Command:
    disk.mkdir()
    return warm.paceline("train", "--out", str(disk / "run"), *SHORT.split(), tmpfs=(disk, options), draws=True)


def ends_elsewhere(process: Command, disk: Path, why: str) -> str:
    """What it said; the result is looked at, and removed."""
    said, told = process.communicate(60)
    assert process.returncode == 0, told
    assert "Traceback" not in told
    assert f"left in {disk / 'run'}: config.toml trace.jsonl\n" in said
    (folder,) = re.findall(r"left in (.*paceline-result-\w+): summary.json model.safetensors", said)
    try:
        assert load_file(Path(folder) / "model.safetensors")
        assert read_summary(Path(folder) / "summary.json").reason == "seconds"
        assert Path(folder).stat().st_mode & 0o777 == 0o700
    finally:
        shutil.rmtree(folder)
    for name in ("model.safetensors", "summary.json"):
        assert f"{name} is in {folder}, as {disk / 'run'} cannot be written: {why}\n" in told
    return told


def until_it_trains(process: Command, disk: Path) -> Callable[[], bool]:
    """By the time of its namespace: what is mounted there can be seen by way of its process."""
    trace = Path(f"/proc/{process.pid}/root{disk}/run/trace.jsonl")
    return lambda: process.poll() is not None or (trace.exists() and trace.stat().st_size > 1000)


def test_a_file_system_that_turns_read_only_ends_no_run(warm: Warm, tmp_path: Path) -> None:
    process = begin(warm, tmp_path / "disk", "size=64m")
    assert within(60, until_it_trains(process, tmp_path / "disk"))
    make_read_only(process.pid, tmp_path / "disk")
    told = ends_elsewhere(process, tmp_path / "disk", "Read-only file system")
    assert told.count("was not saved, the run goes on: Read-only file system") == 1  # a checkpoint, and then no more


def test_a_disk_that_is_full_ends_no_run(warm: Warm, tmp_path: Path) -> None:
    process = begin(warm, tmp_path / "disk", "size=64k")
    told = ends_elsewhere(process, tmp_path / "disk", "No space left on device")
    assert "incarnation 2" not in told, "nobody ends for what it cannot print"
