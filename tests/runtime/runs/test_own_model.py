"""Runs of a network and data that an import path names train them as they train those known by name."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from paceline import config as configuration
from paceline.cli.main import main
from paceline.config import Config
from paceline.core.errors import ConfigError, PacelineError
from paceline.launch.local.train import Silent
from paceline.observe.runs.summary import read_summary
from paceline.runtime.simulated.setup import SimulationSetup
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.sim.cluster.model import uniform
from tests.runtime.conftest import Runner
from tests.runtime.own_model import Net

HERE = "tests.runtime.own_model"


def config_of(out: Path, net: str = "Net", data: str = "pictures", **sections: Any) -> Config:
    return configuration.build(
        {
            "run": {"scheme": "bsp", "out": str(out), "seed": 4},
            "cluster": {"workers": 2, "timeout": 60.0},
            "data": {"name": f"{HERE}:{data}", "batch_size": 10},
            "model": {"name": f"{HERE}:{net}", **sections.pop("model", {})},
            "stop": {"epochs": 12.0},
            **sections,
        }
    )


@pytest.mark.parametrize(("model", "data", "classes"), [("Net", "pictures", 3), ("Words", "texts", 3)])
def test_it_is_trained_and_judged(threads: Runner, out: Path, model: str, data: str, classes: int) -> None:
    summary = threads(config_of(out, model, data))
    assert summary.samples == 12 * 160
    assert summary.test_accuracy is not None
    assert summary.test_accuracy > 1.5 / classes
    assert (summary.model, summary.data) == (f"{HERE}:{model}", f"{HERE}:{data}")


def test_the_file_of_weights_is_that_of_the_users_module(processes: Runner, out: Path) -> None:
    processes(config_of(out))
    Net().load_state_dict(load_file(out / "model.safetensors"))


def test_on_a_card_that_holds_no_whole_batch_it_ends_with_the_same_weights(threads: Runner, tmp_path: Path) -> None:
    nets, stop = ("Net", "OnSmallCard"), {"epochs": 0.0, "steps": 20}
    for net in nets:
        threads(config_of(tmp_path / net, net, stop=stop))
    whole, parts = (load_file(tmp_path / net / "model.safetensors") for net in nets)
    for name, weights in whole.items():
        torch.testing.assert_close(parts[name], weights, rtol=0, atol=1e-6)
    assert json.loads((tmp_path / "OnSmallCard" / "part_sizes.json").read_text()) == {"0": 5, "1": 5}
    assert not (tmp_path / "Net" / "part_sizes.json").exists()


def test_the_simulator_trains_it_too_and_ends_with_the_weights_of_the_live_run(threads: Runner, tmp_path: Path) -> None:
    threads(config_of(tmp_path / "live", stop={"epochs": 2.0}))
    config = config_of(tmp_path / "sim", stop={"epochs": 2.0})
    VirtualRun(SimulationSetup(config=config, cluster=uniform(2)), Silent()).run()
    live, simulated = (load_file(tmp_path / name / "model.safetensors") for name in ("live", "sim"))
    for name, weights in live.items():
        assert torch.allclose(simulated[name], weights, atol=1e-6), name


def test_a_model_that_does_not_fit_the_data_ends_the_run_with_the_way_out(threads: Runner, out: Path) -> None:
    with pytest.raises(PacelineError, match=r"returns \[2, 3\] for 2 samples: let forward return \[2, 5\]"):
        threads(config_of(out, data="too_many_classes"))


def test_a_network_known_by_name_names_what_it_takes(threads: Runner, out: Path) -> None:
    with pytest.raises(PacelineError, match=r"known by name take float32 .*: give --model module:function"):
        threads(config_of(out, data="texts", model={"name": "mlp"}))


def test_what_is_missing_is_told_before_a_process_starts(processes: Runner, out: Path) -> None:
    with pytest.raises(ConfigError, match="own_model has no function Nett; did you mean 'Net'"):
        processes(config_of(out, net="Nett"))


@pytest.mark.parametrize(("key", "value"), [("width", 0.5), ("dropout", 0.1)])
def test_what_only_named_networks_know_is_refused(out: Path, key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"--{key} is for networks known by name: leave it out, or let {HERE}:Net"):
        config_of(out, model={key: value})


def test_a_command_names_a_file_from_its_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_pictures.py").write_text((Path(__file__).parents[1] / "own_model.py").read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    words = ["--model", "my_pictures.py:Net", "--data", "my_pictures:pictures", "--step-ms", "5", "--epochs", "1"]
    assert main(["simulate", *words, "--out", "run"]) == 0
    assert read_summary("run/summary.json").model == "my_pictures.py:Net"
