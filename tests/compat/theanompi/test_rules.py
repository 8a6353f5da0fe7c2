"""Theano-MPI's own script: rule, init, wait."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from paceline.compat.theanompi import BSP, EASGD, rules
from paceline.compat.theanompi.recorder import WIDTHS
from paceline.core.errors import ConfigError, PacelineError
from paceline.observe.runs.summary import read_summary
from tests.launch.forked_cli import Command, Warm

OURS = {"data": "digits", "epochs": 2, "lr": 0.05, "batch_size": 64}


@pytest.fixture
def said(warm: Warm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with what the launches of these rules say; they are forked, in the folder of the test."""
    file = tmp_path / "said"

    def popen(command: list[str]) -> Command:
        assert command[1:5] == ["-P", "-m", "paceline", "launch"]
        return warm.paceline(*command[4:], folder=tmp_path, log=file)

    monkeypatch.setattr(rules, "subprocess", SimpleNamespace(Popen=popen))
    monkeypatch.chdir(tmp_path)
    return file


def test_the_script_of_theano_mpi_trains_and_leaves_its_records(
    said: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rule = BSP()
    rule.init(
        devices=["cpu", "cpu"],
        modelfile="theanompi.models.cifar10",
        modelclass="Cifar10_model",
        launch=["--out", "run"],
        **OURS,
    )
    rule.wait()
    assert "BSP: cdd is --scheme bsp; nccl32 is --allreduce auto" in capfd.readouterr().err
    assert "validation error:" in said.read_text()
    arrays = {name: np.load(tmp_path / "inforec" / f"{name}.npy", allow_pickle=False) for name in WIDTHS}
    assert arrays["val_info"].shape == (2, 4)
    assert arrays["val_info"][-1, 2] < 0.5  # chance is 0.9
    summary = read_summary(tmp_path / "run" / "summary.json")
    assert (summary.scheme, [w.steps for w in summary.workers]) == ("bsp", [22, 22])
    assert summary.test_accuracy == pytest.approx(1 - arrays["val_info"][-1, 2])
    assert (tmp_path / "snapshots" / "Cifar10_model_0.safetensors").exists()


def test_what_cannot_start_is_said_at_once() -> None:
    with pytest.raises(ConfigError, match="EASGD: the first device is the server's, so name two or more"):
        EASGD().init(devices=["cpu"], modelfile="m", modelclass="C")
    with pytest.raises(ConfigError, match=r"call init\(devices="):
        BSP().wait()


def test_a_run_that_fails_is_an_error(said: Path) -> None:
    rule = BSP()
    rule.init(devices=["cpu"], modelfile="theanompi.models.alex_net", modelclass="AlexNt", launch=["--out", "run"])
    with pytest.raises(PacelineError, match="BSP: the run ended with exit code 1"):
        rule.wait()
    assert "of Theano-MPI's own there are AlexNet" in said.read_text()
