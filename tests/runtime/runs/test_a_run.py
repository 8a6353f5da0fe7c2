"""What a run does and what it leaves, in threads and in processes."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.config import Config, build, load, to_dict
from paceline.core.scheme import names
from paceline.core.trace import Evaluated, Span
from paceline.engine.data.dataset import Dataset
from paceline.observe.runs.summary import Summary
from paceline.observe.trace.trace_file import read_trace
from paceline.runtime.evaluator.subject import judge
from paceline.runtime.worker.train_loop import build_model, load_data
from tests.runtime.conftest import Runner
from tests.runtime.one_process import Weights, assert_same, config_for, saved

KEYS = {
    "scheme", "driver", "seed", "reason", "seconds", "samples", "samples_per_second", "test_accuracy",
    "target_accuracy", "seconds_to_target", "bytes_up", "bytes_down", "workers",
}  # fmt: skip
WORKER_KEYS = {
    "rank", "device", "slowdown", "steps", "exchanges", "samples", "seconds_computing", "seconds_waiting",
    "seconds_communicating", "staleness_mean", "staleness_max",
}  # fmt: skip

OWN = {
    "halos": {"k": 4, "global_lr": 0.3},
}
"""halos has its defaults from long runs: after 120 steps its global model has had five small moves, and stalls decide
how good it is."""


def assert_sensible(summary: Summary) -> None:
    assert summary.driver == "live"
    assert summary.seconds > 0
    assert summary.samples == sum(worker.samples for worker in summary.workers) > 0
    assert summary.samples_per_second == pytest.approx(summary.samples / summary.seconds)
    assert summary.bytes_up > 0
    assert summary.bytes_down > 0
    for worker in summary.workers:
        busy = worker.seconds_computing + worker.seconds_waiting + worker.seconds_communicating
        assert busy <= summary.seconds + 0.1, f"worker {worker.rank} was busy for longer than the run took"
        assert min(worker.seconds_computing, worker.seconds_waiting, worker.seconds_communicating) >= 0
        assert worker.exchanges <= worker.steps
        assert summary.scheme == "lbbsp" or worker.samples <= worker.steps * 32


@pytest.mark.parametrize("scheme", names())
def test_every_scheme_trains_the_digits(processes: Runner, out: Path, scheme: str) -> None:
    # Momentum and staleness do not go together; a rate that suits all schemes.
    own = {scheme: OWN[scheme]} if scheme in OWN else {}
    config = config_for(out, steps=120, scheme=scheme, workers=3, model={"width": 1.0}, optimizer={"lr": 0.2}, **own)
    summary = processes(config)
    assert_sensible(summary)
    assert summary.scheme == scheme
    assert summary.reason == "steps"
    assert [worker.steps for worker in summary.workers] == [120] * 3
    assert summary.test_accuracy is not None
    assert summary.test_accuracy > 0.8


@pytest.mark.usefixtures("drawn")
def test_a_run_leaves_what_it_promises(processes: Runner, out: Path) -> None:
    cluster = {"slowdown": [1, 4], "step_ms": 4}
    stop = {"target_accuracy": 0.5, "seconds": 30}
    config = config_for(out, steps=0, scheme="ssp", cluster=cluster, stop=stop, evaluation={"every": 0.1})
    summary = processes(config)
    assert_sensible(summary)
    assert {"config.toml", "trace.jsonl", "summary.json", "model.safetensors", "curve.png"} <= {
        path.name for path in out.iterdir()
    }
    document = json.loads((out / "summary.json").read_text())
    assert set(document) >= KEYS
    assert all(set(worker) >= WORKER_KEYS for worker in document["workers"])
    assert (document["scheme"], document["seed"], document["reason"]) == ("ssp", 3, "target accuracy")
    assert document["target_accuracy"] == 0.5
    assert document["test_accuracy"] == accuracy_of(config) >= 0.5
    evaluated = [record for record in read_trace(out / "trace.jsonl") if isinstance(record, Evaluated)]
    first = next(record for record in sorted(evaluated, key=lambda record: record.at) if record.accuracy >= 0.5)
    assert (document["test_accuracy"], document["seconds_to_target"]) == (first.accuracy, first.at)
    assert 0 < document["seconds_to_target"] <= document["seconds"] + 0.1
    assert [worker["slowdown"] for worker in document["workers"]] == [1.0, 4.0]
    assert max(worker["staleness_max"] for worker in document["workers"]) >= 1
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")
    again = build(load(out / "config.toml"))  # of which the folder is no part: read again, it is another run
    assert to_dict(again) == to_dict(dataclasses.replace(config, run=dataclasses.replace(config.run, out="")))


def test_the_saved_model_is_the_one_that_was_judged_last(processes: Runner, out: Path) -> None:
    config = config_for(out, steps=60, scheme="asp", workers=3, servers=2)
    assert processes(config).test_accuracy == accuracy_of(config)


def accuracy_of(config: Config) -> float:
    """Of the model that a run has left."""
    splits = load_data(config)
    model = build_model(config, splits)
    model.load_state_dict(saved(config))
    return judge(model, splits.test)[0]


def test_its_configuration_reproduces_it(processes: Runner, out: Path) -> None:
    first = config_for(out, steps=20, optimizer={"momentum": 0.9, "lr": 0.02})
    processes(first)
    values: dict[str, dict[str, Any]] = load(out / "config.toml")
    values["run"]["out"] = str(out.with_name("again"))
    again = build(values)
    processes(again)
    assert_same(saved(again), saved(first))


def test_the_trace_adds_up_to_the_summary(processes: Runner, out: Path) -> None:
    summary = processes(config_for(out, steps=40, scheme="gsp", workers=3, gsp={"groups": "0,1;2"}))
    seconds: Counter[tuple[int, str]] = Counter()
    steps: Counter[int] = Counter()
    for record in read_trace(out / "trace.jsonl"):
        if isinstance(record, Span):
            seconds[record.rank, record.activity] += record.seconds
            steps[record.rank] += record.steps
    for worker in summary.workers:
        assert steps[worker.rank] == worker.steps
        assert seconds[worker.rank, "computing"] == pytest.approx(worker.seconds_computing, rel=0.01)
        assert seconds[worker.rank, "waiting"] == pytest.approx(worker.seconds_waiting, rel=0.01, abs=0.01)


def test_evaluation_is_off_the_workers(processes: Runner, out: Path) -> None:
    """A worker that had to wait for an evaluation would show it: ten a second, while its steps are told to be slow."""
    cluster = {"slowdown": [1, 1], "step_ms": 80}  # long enough for what else this machine does
    config = config_for(out, steps=30, scheme="asp", cluster=cluster, evaluation={"every": 0.1})
    summary = processes(config)
    judged = [record for record in read_trace(out / "trace.jsonl") if isinstance(record, Evaluated)]
    assert len(judged) >= 5
    for worker in summary.workers:
        assert worker.seconds_computing > 0.6 * summary.seconds


def test_under_esync_the_slowest_worker_makes_one_step_a_round(processes: Runner, out: Path) -> None:
    cluster = {"slowdown": [1, 1, 6], "step_ms": 60}  # long enough for what else this machine does
    summary = processes(
        config_for(out, steps=0, scheme="esync", workers=3, cluster=cluster, stop={"seconds": 8.0, "steps": 0})
    )
    fast, _, slow = summary.workers
    assert slow.exchanges >= 10
    assert 0 <= slow.steps - slow.exchanges <= 2  # two in the first round, and the run may end within one
    assert abs(fast.exchanges - slow.exchanges) <= 1
    assert fast.steps >= 2.5 * slow.steps
    assert slow.seconds_waiting < 0.3 * summary.seconds


def test_a_share_says_which_samples_a_worker_trains_on_and_not_how_many(
    threads: Runner, out: Path, tmp_path: Path
) -> None:
    (tmp_path / "sharding").write_text("0 0.9\n0.9 1\n")
    summary = threads(
        config_for(out, steps=0, data={"partition": f"file:{tmp_path}/sharding"}, stop={"epochs": 2.0, "seconds": 60})
    )
    large, small = summary.workers
    assert abs(large.steps - small.steps) <= 1
    assert small.samples / 0.1 > 7 * large.samples / 0.9  # passes through their shares


def test_more_data_for_one_worker_stalls_nobody(runner: Runner, out: Path) -> None:
    config = config_for(
        out, steps=0, workers=3, data={"partition": "fractions:0.9,0.1,0"}, stop={"epochs": 2.0, "seconds": 60}
    )
    summary = runner(config)
    assert summary.reason == "epochs"
    assert summary.workers[2].samples == 0


@pytest.mark.parametrize("policy", ["average", "local"])
def test_a_model_with_batch_norm_is_saved_with_statistics_it_can_be_used_with(
    processes: Runner, out: Path, policy: str
) -> None:
    model = {"name": "cnn", "width": 0.25, "buffers": policy}
    config = config_for(out, steps=25, scheme="esync", model=model, optimizer={"lr": 0.1})
    summary = processes(config)
    weights: Weights = saved(config)
    means = [tensor for name, tensor in weights.items() if name.endswith("running_mean")]
    assert means
    assert all(bool(mean.abs().max() > 0) for mean in means)
    assert summary.test_accuracy is not None
    assert summary.test_accuracy > 0.3


def test_accuracy_is_the_share_of_right_answers() -> None:
    class Says(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot(x.flatten().long(), 3).float()

    data = Dataset(torch.tensor([0.0, 1.0, 2.0, 2.0]).reshape(4, 1, 1, 1), torch.tensor([0, 1, 2, 0]), 3)
    assert judge(Says(), data)[0] == 0.75
