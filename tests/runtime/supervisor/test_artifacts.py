"""A disk that is full stops nothing but what would be written: a line says so, and training goes on."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, NoReturn

import pytest

from paceline.checkpoint import atomic_file
from paceline.launch.local.train import Silent
from paceline.observe.trace import trace_file
from paceline.runtime.evaluator import evaluator
from paceline.runtime.supervisor import artifacts
from tests.runtime.conftest import Runner
from tests.runtime.one_process import config_for

FULL = OSError(errno.ENOSPC, "No space left on device")


class Lines(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def begin(self, lines: Any) -> None:
        self.lines += lines


def full(*_: Any, **__: Any) -> NoReturn:
    raise FULL


def test_where_the_figure_does_not_fit_a_line_says_so_and_all_else_is_there(
    out: Path, monkeypatch: pytest.MonkeyPatch, threads: Runner
) -> None:
    monkeypatch.setattr(artifacts, "curve", full)
    view = Lines()
    assert threads(config_for(out, steps=9), view).reason == "steps"
    assert "curve.png was not written: No space left on device" in view.lines
    assert not (out / "curve.png").exists()
    assert (out / "summary.json").exists()
    assert (out / "model.safetensors").exists()


def test_training_goes_on_when_nothing_can_be_written(
    out: Path, monkeypatch: pytest.MonkeyPatch, threads: Runner
) -> None:
    monkeypatch.setattr(atomic_file, "write", full)
    monkeypatch.setattr(evaluator, "save_file", full)
    monkeypatch.setattr(trace_file, "_encode", full)
    monkeypatch.setattr(artifacts, "write_summary", full)
    view = Lines()
    config = config_for(out, steps=9, checkpoint={"every": 0.01}, evaluation={"every": 0.01}, cluster={"step_ms": 5.0})
    summary = threads(config, view)
    assert [worker.steps for worker in summary.workers] == [9, 9]
    assert summary.reason == "steps"
    for what in ("checkpoint 1", "model.safetensors", "trace.jsonl", "summary.json"):
        told = [line for line in view.lines if what in line]
        assert told, what
        assert all("No space left on device" in line for line in told), what
    assert sum("trace.jsonl" in line and "training goes on" in line for line in view.lines) == 1
    assert [path.name for path in (out / "checkpoints").iterdir()] == []
    assert not (out / "model.safetensors").exists()
