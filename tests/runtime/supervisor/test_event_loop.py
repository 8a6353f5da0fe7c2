"""Signals while a run ends."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from torch import nn

from paceline.checkpoint.folder_store import CHECKPOINTS
from paceline.runtime.checkpointing.writer import CheckpointWriter
from paceline.runtime.supervisor.supervisor import RunSupervisor
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import plain_steps, run_loops, toy_data


def test_a_ctrl_c_while_the_last_model_is_saved_lets_it_be_saved(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, save = RunSupervisor.run, CheckpointWriter.save
    running: list[RunSupervisor] = []

    def noted(self: RunSupervisor) -> object:
        running.append(self)
        return run(self)

    def interrupted(self: CheckpointWriter, accuracy: float) -> None:
        running[0].interrupt("SIGINT")
        until = time.monotonic() + 20.0
        while not running[0].interrupted and time.monotonic() < until:
            time.sleep(0.001)
        save(self, accuracy)

    monkeypatch.setattr(RunSupervisor, "run", noted)
    monkeypatch.setattr(CheckpointWriter, "save", interrupted)

    def loop(pace: Pace, model: nn.Module) -> None:
        plain_steps(pace, model, toy_data())

    summary, _ = run_loops(out, "asp", loop, checkpoint={"every": 30.0})
    assert running[0].interrupted == "SIGINT"
    assert summary.reason == "every worker was done"
    assert len(list((out / CHECKPOINTS).iterdir())) == 1
