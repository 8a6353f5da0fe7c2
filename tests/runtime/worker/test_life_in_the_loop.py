"""What a loop may say of the run: that it ends, how good the model is; and a look at the model of all."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.core.trace import ASKS_FOR_END
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import run_loops, toy_data

DATA = toy_data()


def train_one(model: nn.Module, pace: Pace) -> None:
    x, y = DATA[:8]
    nn.functional.cross_entropy(model(x), y).backward()
    pace.step(8)


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync", "localsgd"])
def test_one_loop_ends_the_run_for_all_and_the_summary_says_why(out: Path, scheme: str) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(DATA, 8, epochs=None):
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()
            if pace.rank == 0 and pace.steps == 5:
                pace.stop("patience ran out")
        assert pace.over

    summary, models = run_loops(out, scheme, loop)
    assert summary.reason == "patience ran out (worker 0)"
    assert summary.workers[0].steps == 5
    torch.testing.assert_close(nn.utils.parameters_to_vector(models[1].parameters()), vector(models[2]))


def test_one_that_does_not_decide_leaves_alone_and_most_workers_end_the_run(out: Path) -> None:
    alone = threading.Event()

    def loop(pace: Pace, model: nn.Module) -> None:
        while not pace.over:
            if pace.rank == 3:
                pace.stop("mine")
                alone.set()
                break
            train_one(model, pace)
            if pace.rank > 0 and alone.is_set() and pace.steps >= 5:
                pace.stop("ours")

    summary, _ = run_loops(out, "asp", loop, workers=4)
    assert re.fullmatch(r"ours \(worker [12]\)", summary.reason)
    asked = [
        row["reason"]
        for row in map(json.loads, (out / "trace.jsonl").read_text().splitlines())
        if row.get("verdict") == ASKS_FOR_END
    ]
    assert asked[0] == (
        "worker 3 asks for the end of the run (mine); it goes on until worker 0 does, or most workers do"
    )
    assert len(asked) == 2


def vector(model: nn.Module) -> torch.Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def test_what_a_loop_reports_is_in_the_trace_and_the_summary(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        train_one(model, pace)
        if pace.rank == 0:
            pace.report(accuracy=0.25, loss=1.5)
            pace.report(loss=1.25)
            pace.report(accuracy=0.75, loss=1.0)

    summary, _ = run_loops(out, "asp", loop, workers=2)
    rows = [json.loads(line) for line in (out / "trace.jsonl").read_text().splitlines()]
    told = [row for row in rows if "evaluated" in json.dumps(row)]
    assert len(told) == 3
    assert summary.test_accuracy == 0.75


def test_a_report_that_reaches_the_target_ends_the_run(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(DATA, 8, epochs=None):
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()
            if pace.rank == 0:
                pace.report(accuracy=min(1.0, pace.steps / 8))

    summary, _ = run_loops(out, "asp", loop, workers=2, stop={"target_accuracy": 0.9})
    assert summary.reason == "target accuracy"
    assert summary.test_accuracy == 1.0
    assert summary.seconds_to_target is not None


def test_an_accuracy_is_a_share(out: Path) -> None:
    def loop(pace: Pace, model: nn.Module) -> None:
        with pytest.raises(ConfigError, match="from 0 to 1"):
            pace.report(accuracy=97.5)

    run_loops(out, "asp", loop, workers=1)
