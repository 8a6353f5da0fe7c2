"""The hooks of examples/tracking/hooks.py, with stand-ins for the services they send to: neither is installed here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from paceline.cli.main import main

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "tracking"
RUN = ["--scheme", "bsp", "--workers", "2", "--step-ms", "10", "--model", "mlp", "--width", "0.25", "--epochs", "1"]


def service(name: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Any:
    """What a simulated run with that hook has called."""
    stand_in = MagicMock()
    monkeypatch.setitem(sys.modules, name.lower(), stand_in)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    assert main(["simulate", *RUN, "--out", str(folder / "run"), "--hook", f"hooks:{name}"]) == 0
    return stand_in


def test_weights_and_biases_hears_of_accuracy_and_of_every_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = service("WandB", monkeypatch, tmp_path)
    logged = [call.args[0] for call in wandb.init.return_value.log.call_args_list]
    assert {"accuracy", "worker 0/computing", "worker 1/computing"} <= {key for line in logged for key in line}
    assert [line["samples"] for line in logged] == sorted(line["samples"] for line in logged)
    wandb.init.return_value.finish.assert_called_once()


def test_mlflow_hears_the_same_under_names_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = service("MLflow", monkeypatch, tmp_path)
    names = {name for call in mlflow.log_metrics.call_args_list for name in call.args[0]}
    assert {"accuracy", "worker_1/computing"} <= names
    mlflow.end_run.assert_called_once()
