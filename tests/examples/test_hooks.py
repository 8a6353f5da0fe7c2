"""The hooks of examples/tracking/hooks.py: with stand-ins for the services they send to, and with the real packages
where those are installed, which write to files here."""

from __future__ import annotations

import importlib.util
import os
import sqlite3
import subprocess
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
    client = service("MLflow", monkeypatch, tmp_path).MlflowClient.return_value
    run = client.create_run.return_value.info.run_id
    assert {"accuracy", "worker_1/computing"} <= {call.args[1] for call in client.log_metric.call_args_list}
    assert {call.args[0] for call in client.log_metric.call_args_list} == {run}
    client.set_terminated.assert_called_once_with(run)


# ---- the real ones -----------------------------------------------------------------------------------------
def really(name: str, folder: Path, **environment: str) -> None:
    """A simulated run with that hook, in a process and a folder of its own."""
    if importlib.util.find_spec(name.lower()) is None:
        pytest.skip(f"{name.lower()} is not installed")
    (folder / "hooks.py").write_text((EXAMPLES / "hooks.py").read_text())
    command = [sys.executable, "-m", "paceline", "simulate", *RUN, "--out", "run", "--hook", f"hooks:{name}"]
    paths = os.pathsep.join([str(EXAMPLES.parents[1]), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    found = {**os.environ, "PYTHONPATH": paths, **environment}
    done = subprocess.run(command, cwd=folder, env=found, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "not called again" not in done.stderr


def test_weights_and_biases_itself_keeps_the_numbers_and_the_configuration(tmp_path: Path) -> None:
    really("WandB", tmp_path, WANDB_MODE="offline")
    [kept] = (tmp_path / "wandb").glob("offline-run-*")
    assert (kept / "files" / "config.toml").read_bytes() == (tmp_path / "run" / "config.toml").read_bytes()
    [numbers] = [path.read_bytes() for path in kept.glob("*.wandb")]
    assert b"worker 1/computing" in numbers


def test_mlflow_itself_keeps_all_of_it_in_one_run_that_has_finished(tmp_path: Path) -> None:
    really("MLflow", tmp_path, MLFLOW_TRACKING_URI=f"sqlite:///{tmp_path}/mlflow.db")
    base = sqlite3.connect(tmp_path / "mlflow.db")
    try:
        assert base.execute("select name, status from runs").fetchall() == [("run", "FINISHED")]
        kept = {name for (name,) in base.execute("select distinct key from metrics")}
    finally:
        base.close()
    assert {"accuracy", "worker_1/computing"} <= kept
    assert [*tmp_path.glob("mlruns/**/config.toml")]
