"""Runs in virtual time: real models and data, or vectors without numbers."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from paceline import config as configuration
from paceline.core.errors import ConfigError
from paceline.core.trace import Evaluated, Span
from paceline.launch.local.train import Silent
from paceline.observe.runs.summary import Summary, write_summary
from paceline.observe.trace.trace_file import read_trace
from paceline.runtime.simulated import cluster_from_trace
from paceline.runtime.simulated.estimate import held, look
from paceline.runtime.simulated.setup import SimulationSetup, cluster_of
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.sim import Cluster, load
from paceline.sim.cluster.model import NetworkSpec
from tests.observe.fake_runs import summary as made_up_summary
from tests.observe.fake_runs import worker

FAST = NetworkSpec(latency_s=1e-4, bandwidth_gbps=10.0)


def setting(
    scheme: str = "bsp", timing_only: bool = False, cluster: Cluster | None = None, **more: Any
) -> SimulationSetup:
    values: dict[str, Any] = {
        "run": {"scheme": scheme, "out": more.pop("out", "")},
        "cluster": {"workers": 3, "slowdown": [1, 2, 4], "step_ms": 10, **more.pop("on", {})},
        "model": {"name": "mlp", "width": 0.25},
        "optimizer": {"lr": 0.1},
        **more,
    }
    config = configuration.build(values)
    return SimulationSetup(
        config=config, cluster=cluster or cluster_of(config, FAST, lambda: 0.0), timing_only=timing_only
    )


def run(scheme: str = "bsp", **more: Any) -> Summary:
    return VirtualRun(setting(scheme, **more), Silent()).run(leave=False)


def test_the_schedule_of_a_worker_that_updates_alone_counts_what_all_have_seen() -> None:
    virtual = VirtualRun(setting("adpsgd", on={"servers": 0}, stop={"steps": 20, "epochs": 0}), Silent())
    own = {w.rank: w.samples for w in virtual.run(leave=False).workers}
    rules: list[Any] = [virtual.simulation.worker(rank).update for rank in own]
    assert all(rule.samples_seen > seen for rule, seen in zip(rules, own.values(), strict=True))


def test_a_round_lasts_as_long_as_the_slowest_step_and_the_model_learns() -> None:
    summary = run(stop={"steps": 50, "epochs": 0})
    assert summary.driver == "sim"
    assert summary.reason == "steps"
    assert [w.steps for w in summary.workers] == [50, 50, 50]
    assert 50 * 0.04 < summary.seconds < 50 * 0.042
    assert summary.test_accuracy is not None
    assert summary.test_accuracy > 0.4  # one in ten is chance
    samples_s = [w.samples / 32 * seconds for w, seconds in zip(summary.workers, (0.01, 0.02, 0.04), strict=True)]
    assert [w.seconds_computing for w in summary.workers] == pytest.approx(samples_s)
    assert samples_s == pytest.approx([0.5, 1.0, 2.0], rel=0.003), "the last batch of an epoch is one short"
    assert summary.bytes_up == pytest.approx(50 * 3 * 4 * summary.model_length)


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync", "localsgd"])
def test_timing_only_takes_as_long_as_training_does(scheme: str) -> None:
    real, ghost = (run(scheme, timing_only=timing_only, stop={"epochs": 1}) for timing_only in (False, True))
    assert ghost.test_accuracy is None
    for name in ("samples", "model_length", "bytes_up", "bytes_down"):
        assert getattr(real, name) == getattr(ghost, name), name
    assert real.seconds == pytest.approx(ghost.seconds, rel=1e-12)
    assert [(w.steps, w.exchanges) for w in real.workers] == [(w.steps, w.exchanges) for w in ghost.workers]


def test_the_target_ends_a_run_and_evaluations_have_virtual_times(tmp_path: Path) -> None:
    stop = {"target_accuracy": 0.7}
    summary = VirtualRun(setting("asp", stop=stop, out=str(tmp_path / "run")), Silent()).run()
    assert summary.reason == "target accuracy"
    seen = [r for r in read_trace(tmp_path / "run" / "trace.jsonl") if isinstance(r, Evaluated)]
    assert [r.at for r in seen] == sorted(r.at for r in seen)
    assert seen[-1].at == summary.seconds == summary.seconds_to_target
    assert all(r.accuracy < 0.7 for r in seen[:-1])
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["driver"] == "sim"


def test_the_same_seed_leaves_the_same_bytes(tmp_path: Path) -> None:
    def left(name: str, seed: int) -> list[bytes]:
        wanted = setting("asp", cluster=load("two-generations"), on={"workers": 8, "servers": 2, "slowdown": []},
                         stop={"epochs": 0.5})  # fmt: skip
        values = configuration.to_dict(wanted.config)
        values["run"].update(seed=seed, out=str(tmp_path / name))
        again = SimulationSetup(config=configuration.build(values), cluster=wanted.cluster)
        VirtualRun(again, Silent()).run()
        return [(tmp_path / name / f).read_bytes() for f in ("trace.jsonl", "summary.json", "model.safetensors")]

    first = left("a", 1)
    assert first == left("b", 1)
    assert all(x != y for x, y in zip(first, left("c", 2), strict=True))


def test_an_interrupted_run_keeps_what_there_is() -> None:
    virtual = VirtualRun(setting(stop={"epochs": 5}), Silent())
    virtual.interrupt("SIGINT")
    summary = virtual.run(leave=False)
    assert summary.reason == "interrupted by SIGINT"
    with pytest.raises(KeyboardInterrupt):
        virtual.interrupt("SIGINT")


def test_timing_only_needs_an_end_other_than_an_accuracy() -> None:
    with pytest.raises(ConfigError, match="--timing-only trains no model"):
        setting(timing_only=True, stop={"epochs": 0, "target_accuracy": 0.9})
    with pytest.raises(ConfigError, match="--target-accuracy 0.9: with --timing-only no model is trained"):
        setting(timing_only=True, stop={"epochs": 1, "target_accuracy": 0.9})


def test_a_cluster_is_made_of_what_a_run_has_left(tmp_path: Path) -> None:
    """Steps as they were; of the network, what the worker that waited least lost with each exchange."""
    out = tmp_path / "run"
    VirtualRun(setting("bsp", stop={"steps": 30, "epochs": 0}, out=str(out)), Silent()).run()
    cluster, length = cluster_from_trace.cluster(out)
    assert cluster.workers == 3
    assert cluster.servers == 1
    assert cluster.seconds_per_step() == pytest.approx((0.01, 0.02, 0.04), rel=0.003), "some are shorter"
    assert length == VirtualRun(setting(), Silent()).model_length
    again = run("bsp", timing_only=True, cluster=cluster, stop={"steps": 30, "epochs": 0})
    first = sum(r.seconds for r in read_trace(out / "trace.jsonl") if isinstance(r, Span) and r.rank == 2)
    assert again.seconds == pytest.approx(first, rel=0.02)


def test_a_run_in_which_a_worker_finished_no_step_is_refused(tmp_path: Path) -> None:
    write_summary(made_up_summary(), tmp_path / "summary.json")
    (tmp_path / "trace.jsonl").write_text("")
    with pytest.raises(ConfigError, match="worker 0 finished no step"):
        cluster_from_trace.cluster(tmp_path)


def test_the_network_is_that_of_the_worker_that_waited_least() -> None:
    idle, busy = (worker(rank, seconds_computing=s, exchanges=100) for rank, s in ((0, 2.0), (1, 9.0)))
    summary = made_up_summary(workers=0, seconds=10.0, bytes_up=10**6, bytes_down=10**6)
    network = cluster_from_trace.network(dataclasses.replace(summary, workers=(idle, busy)))
    nbytes, moving_s = 2 * 10**6 / 200, 1.0 / 100
    assert network.latency_s == pytest.approx((0.01 - moving_s) / 2)
    assert network.bandwidth_gbps == pytest.approx(nbytes * 8e-9 / moving_s)


def test_memory_grows_with_what_a_scheme_keeps() -> None:
    """DC-ASGD's server has a backup for each worker; ASP's has none."""
    prospects = {name: look(setting(name, timing_only=True), Silent()) for name in ("asp", "dcasgd")}
    length = prospects["asp"].summary.model_length
    more = prospects["dcasgd"].server_bytes - prospects["asp"].server_bytes
    assert more >= 3 * 4 * length
    assert held({"a": [1, "x", None]}) == 0


@pytest.mark.parametrize(
    ("scheme", "unseen"),
    [
        ("bsp", ""),
        ("hybrid", "esync, after bsp until 100 steps"),
        ("postlocal", "8 local steps a round, after 200 steps"),
    ],
)
def test_a_short_look_says_what_of_a_scheme_that_changes_it_did_not_see(scheme: str, unseen: str) -> None:
    assert look(setting(scheme, timing_only=True), Silent()).unseen == unseen


@pytest.mark.parametrize("workers", [4, 64, 256, 1000])
def test_equal_workers_get_through_as_many_samples_whoever_says_how_large_a_batch_is(
    monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """Without a data set a batch is --batch-size, whatever the workers; a sample costs the same in each."""
    monkeypatch.setattr("paceline.runtime.simulated.estimate.ROUNDS", 40 if workers < 100 else 4)
    config = configuration.build(
        {"cluster": {"workers": workers, "servers": 1, "step_ms": 10.0}, "data": {"batch_size": 32}}
    )
    cluster = cluster_of(config, NetworkSpec(latency_s=0.0, bandwidth_gbps=1e9), lambda: 0.0)
    rates = {}
    for scheme in ("bsp", "lbbsp"):
        run = dataclasses.replace(config.run, scheme=scheme)
        chosen = SimulationSetup(
            config=dataclasses.replace(config, run=run),
            cluster=cluster,
            timing_only=True,
            model_length=1000,
        )
        rates[scheme] = look(chosen, Silent()).samples_per_second
    assert rates["bsp"] == pytest.approx(workers * 32 / 0.01, rel=0.05)
    assert rates["lbbsp"] == pytest.approx(rates["bsp"], rel=0.05)


def test_a_batch_costs_what_its_samples_cost() -> None:
    for timing_only in (False, True):
        summary = run("bsp", timing_only=timing_only, stop={"steps": 30, "epochs": 0})
        cost = [w.seconds_computing / w.samples for w in summary.workers]
        assert cost == pytest.approx([0.01 / 32, 0.02 / 32, 0.04 / 32])
