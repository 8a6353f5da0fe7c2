"""A run says which of its stop rules has ended it: the same in threads and in virtual time."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.main import main
from paceline.launch.local.train import Silent
from paceline.runtime.simulated.simulated_run import VirtualRun
from tests.runtime.conftest import Runner
from tests.runtime.one_process import config_for
from tests.runtime.simulated.virtual_runs import setting

SAMPLES = 240
RULES: list[tuple[dict[str, Any], str]] = [
    ({"epochs": 1.0}, "epochs"),
    ({"epochs": 0.0, "samples": 96}, "samples"),
    ({"epochs": 1.0, "samples": 96}, "samples"),
    ({"epochs": 0.5, "samples": SAMPLES}, "epochs"),
    ({"epochs": 1.0, "samples": SAMPLES}, "samples"),
    ({"epochs": 1.0, "steps": 2}, "steps"),
    ({"epochs": 1.0, "target_accuracy": 0.01}, "target accuracy"),
]
SCHEMES = ["bsp", "asp", "esync", "diloco", "adpsgd"]
DATA = {"name": "synthetic", "samples": SAMPLES, "batch_size": 8}


@pytest.mark.parametrize(("stop", "reason"), RULES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_live_run_says_so(threads: Runner, out: Path, scheme: str, stop: dict[str, Any], reason: str) -> None:
    late = {"step_ms": 30.0} if reason == "target accuracy" else {}  # so that it is evaluated before it is over
    config = config_for(out, steps=0, scheme=scheme, workers=2, data=DATA, stop={"seconds": 60, **stop}, cluster=late)
    assert threads(config).reason == reason


@pytest.mark.parametrize(("stop", "reason"), RULES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_simulated_run_says_so(scheme: str, stop: dict[str, Any], reason: str) -> None:
    simulated = setting(scheme, on={"slowdown": [1, 1, 2], "servers": 1}, data=DATA, stop=stop)
    assert VirtualRun(simulated, Silent()).run(leave=False).reason == reason


LOOP = """
import torch, paceline
model = torch.nn.Linear(64, 2)
pace = paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.1), "asp")
data = torch.utils.data.TensorDataset(torch.ones(64, 64), torch.zeros(64))
for x, _ in pace.batches(data, 8, epochs=1):
    model(x).sum().backward()
    pace.step()
pace.close()
"""


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "every worker was done"),
        (["--total-samples", "32"], "samples"),
        (["--total-samples", "999"], "every worker was done"),
    ],
)
def test_a_run_of_a_loop_says_so(out: Path, words: list[str], reason: str) -> None:
    script = out.parent / "loop.py"
    script.write_text(LOOP)
    assert main(["launch", "-n", "2", "-s", "1", *words, "--out", str(out), sys.executable, str(script)]) == 0
    assert json.loads((out / "summary.json").read_text())["reason"] == reason
