"""`advise --from` and `simulate --from` of a run of a user's own script: its times, its sizes, nothing invented."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import paceline.config as configuration
from paceline.cli.main import main
from paceline.observe.runs.summary import Summary, read_summary
from tests.cli.conftest import Capture, refused_here
from tests.runtime.own_loops import run_loops, toy_data

STEP_MS, SLOWDOWN, BATCH = 6.0, (1.0, 3.0), 7


def loop(pace: Any, model: Any) -> None:
    for x, y in pace.batches(toy_data(), BATCH, epochs=10):
        nn.functional.cross_entropy(model(x), y).backward()
        pace.step()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `paceline launch` of a script leaves."""
    out = tmp_path_factory.mktemp("runs") / "launch"
    run_loops(out, "asp", loop, workers=2, cluster={"slowdown": SLOWDOWN, "step_ms": STEP_MS})
    config = configuration.build(configuration.load(str(out / "config.toml")))
    named = dataclasses.replace(config, run=dataclasses.replace(config.run, script="python my/train.py --lr 1"))
    configuration.save(named, out / "config.toml")
    return out


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def simulated(name: str) -> Summary:
    return read_summary(Path(name) / "summary.json")


def test_advice_is_given_on_the_machines_of_the_run(run: Path, capsys: Capture) -> None:
    assert main(["advise", "--from", str(run), "--schemes", "bsp,asp"]) == 0
    out = capsys.readouterr().out
    assert {line.split()[0] for line in out.splitlines()[1:3]} == {"asp", "bsp"}
    assert "Without risk: bsp" in out


def test_the_simulation_trains_nothing_and_ends_with_the_samples_of_the_run(run: Path, capsys: Capture) -> None:
    assert main(["simulate", "--scheme", "bsp", "--from", str(run), "--out", "sim"]) == 0
    said = capsys.readouterr().err
    assert f"{run} is a run of your own script: times are simulated, nothing is trained" in said
    recorded, found = read_summary(run / "summary.json"), simulated("sim")
    assert (found.model, found.data, found.model_length) == ("train.py", "", recorded.model_length)
    assert abs(found.samples - recorded.samples) <= 2 * BATCH
    mean = recorded.samples / sum(worker.steps for worker in recorded.workers)
    assert abs(found.samples / sum(worker.steps for worker in found.workers) - mean) <= 0.5
    assert found.test_accuracy is None
    assert not Path("sim", "model.safetensors").exists()


def test_an_end_of_ones_own_and_another_size_of_batches_count(run: Path) -> None:
    assert (
        main(["simulate", "--scheme", "asp", "--from", str(run), "--steps", "9", "--batch-size", "4", "--out", "s"])
        == 0
    )
    assert [(worker.steps, worker.samples) for worker in simulated("s").workers] == [(9, 36)] * 2


def test_with_a_model_that_one_is_trained_on_the_cluster_of_the_run(run: Path) -> None:
    words = ["--model", "mlp", "--data", "digits", "--width", "0.1", "--epochs", "1", "--out", "trained"]
    assert main(["simulate", "--scheme", "asp", "--from", str(run), *words]) == 0
    found = simulated("trained")
    assert (found.model, found.data, found.samples) == ("mlp", "digits", 1437)
    assert found.test_accuracy is not None
    assert json.loads(found.to_json())["workers"][1]["steps"] < found.workers[0].steps


def test_what_a_script_does_not_say_is_asked_for_in_one_line(run: Path, capsys: Capture) -> None:
    told = refused_here(capsys, "advise", "--from", str(run), "--target-accuracy", "0.9")
    assert "is a run of your own script, which is not trained here; give --model and --data" in told
    assert main(["simulate", "--from", str(run), "--epochs", "3"]) == 2
    told = capsys.readouterr().err
    assert "--epochs: nobody knows here how long one of a script is; give --total-samples or --seconds" in told
