"""Whole runs in which workers send bad numbers."""

from __future__ import annotations

import dataclasses
import itertools
import math
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from paceline.cli.support.run_and_report import faults_of
from paceline.config import build
from paceline.core.effects import Compute, Computed
from paceline.core.errors import ConfigError
from paceline.core.paramserver.gradient_check import GradientCheckPolicy
from paceline.core.trace import Gated, MemberChange
from paceline.engine.model.mixed_precision import Precision
from paceline.engine.vectors.flat import Flat, norm
from paceline.launch.local.train import Silent
from paceline.observe.runs.summary import Summary
from paceline.observe.trace.trace_file import read_trace
from paceline.runtime.simulated.setup import SimulationSetup, cluster_of
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.runtime.simulated.workload import Training
from paceline.runtime.supervisor.phase_deadlines import RunFailed
from paceline.sim.cluster.model import NetworkSpec
from tests.runtime.conftest import Runner
from tests.runtime.one_process import config_for, saved

Fault = Callable[[int, Flat], Any]


def flipped(rank: int, g: Flat) -> Flat:
    return g * -100.0 if rank == 5 else g


def simulated(
    monkeypatch: pytest.MonkeyPatch, scheme: str, workers: int, fault: Fault, gate: str, **sections: Any
) -> Summary:
    """In virtual time, with `fault` on its way from each worker's gradient to the servers."""
    compute = Training.compute

    def faulty(self: Training, rank: int, wanted: Compute, rng: Random) -> Computed:
        computed = compute(self, rank, wanted, rng)
        return dataclasses.replace(computed, g=fault(rank, computed.g))

    monkeypatch.setattr(Training, "compute", faulty)
    config = build(
        {
            "run": {"scheme": scheme},
            "cluster": {"workers": workers, "step_ms": 10, "servers": 2},
            "model": {"width": 0.25},
            "gate": {"mode": gate},
            "stop": {"epochs": 8},
            **sections,
        }
    )
    cluster = cluster_of(config, NetworkSpec(latency_s=1e-4, bandwidth_gbps=10.0), lambda: 0.0)
    run = VirtualRun(SimulationSetup(config=config, cluster=cluster), Silent())
    summary = run.run(leave=False)
    assert torch.isfinite(run.simulation.model().value()).all()
    return summary


@pytest.mark.parametrize("scheme", ["bsp", "asp"])
def test_one_push_in_a_hundred_without_numbers_does_no_harm(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    count = itertools.count(1)

    def one_in_a_hundred(rank: int, g: Flat) -> Flat:
        return g * math.nan if next(count) % 100 == 0 else g

    summary = simulated(monkeypatch, scheme, 4, one_in_a_hundred, "warn")
    refused, pushed = sum(w.refused for w in summary.workers), sum(w.exchanges for w in summary.workers)
    assert 0 < pushed // 100 - 2 <= refused <= pushed // 100 + 2
    assert summary.test_accuracy is not None
    assert summary.test_accuracy > 0.85


def test_of_eight_workers_one_that_sends_its_gradient_times_minus_a_hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = simulated(monkeypatch, "bsp", 8, lambda rank, g: g, "warn")
    gated = simulated(monkeypatch, "bsp", 8, flipped, "reject")
    assert honest.test_accuracy is not None
    assert gated.test_accuracy is not None
    assert gated.test_accuracy > 0.95 * honest.test_accuracy > 0.7
    assert [w.rank for w in gated.workers if w.refused > 0.8 * w.exchanges] == [5]
    (line,) = [line for line in faults_of(gated) if "worker 5" in line]
    assert "refused" in line


def test_a_live_run_counts_what_it_refuses(monkeypatch: pytest.MonkeyPatch, threads: Runner, tmp_path: Path) -> None:
    count, backward = itertools.count(1), Precision.backward

    def faulty(self: Precision, loss_of: Callable[..., Tensor], *batch: Tensor, **parts: Any) -> Tensor:
        factor = math.nan if next(count) % 25 == 0 else 1.0
        return backward(self, lambda *batch: loss_of(*batch) * factor, *batch, **parts)

    monkeypatch.setattr(Precision, "backward", faulty)
    config = config_for(tmp_path, steps=60, cluster={"slice_mb": 0.01})
    summary = threads(config)
    refused = [r for r in read_trace(tmp_path / "trace.jsonl") if isinstance(r, Gated) and r.refused]
    assert {(r.rank, r.number) for r in refused} == {(r.rank, r.number) for r in refused if r.shard == 0}
    assert sum(w.refused for w in summary.workers) == len({(r.rank, r.number) for r in refused}) >= 3
    assert len(refused) > sum(w.refused for w in summary.workers), "each slice speaks for itself"
    assert all(torch.isfinite(v).all() for v in saved(config).values())


def nan_of_worker_3(rank: int, g: Flat) -> Flat:
    return g * math.nan if rank == 3 else g


@pytest.mark.parametrize("scheme", ["bsp", "asp"])
def test_a_worker_that_sends_nothing_else_is_put_out_and_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    summary = simulated(monkeypatch, scheme, 4, nan_of_worker_3, "warn")
    (lost,) = summary.faults
    assert lost.party == "worker 3"
    assert "bad numbers: all of its last 10 contributions were refused; it does not come back" in lost.reason
    assert 10 <= summary.workers[3].refused <= 12
    assert all(w.refused == 0 for w in summary.workers[:3])
    assert summary.test_accuracy is not None
    assert summary.test_accuracy > 0.85


def test_one_that_the_run_could_not_do_without_stays_in_virtual_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    summary = simulated(
        monkeypatch,
        "asp",
        4,
        nan_of_worker_3,
        "warn",
        cluster={"workers": 4, "step_ms": 10, "servers": 2, "min_workers": 4},
        stop={"epochs": 2},
    )
    assert summary.faults == ()
    assert summary.workers[3].refused > 12


@pytest.mark.parametrize("scheme", ["bsp", "asp"])
def test_a_live_worker_that_sends_nothing_else_is_put_out_for_good(
    monkeypatch: pytest.MonkeyPatch, threads: Runner, tmp_path: Path, scheme: str
) -> None:
    backward = Precision.backward

    def faulty(self: Precision, loss_of: Callable[..., Tensor], *batch: Tensor, **parts: Any) -> Tensor:
        factor = math.nan if threading.current_thread().name == "worker 3" else 1.0
        return backward(self, lambda *batch: loss_of(*batch) * factor, *batch, **parts)

    monkeypatch.setattr(Precision, "backward", faulty)
    config = config_for(tmp_path, steps=60, scheme=scheme, workers=4, servers=2, cluster={"restarts": 3, "step_ms": 5})
    summary = threads(config)
    members = [r for r in read_trace(tmp_path / "trace.jsonl") if isinstance(r, MemberChange) and r.party == "worker 3"]
    assert [r.event for r in members] == ["joined", "lost"]
    assert members[1].reason.startswith("expelled: ")
    assert "its last 10 contributions were refused; it is not started again; 3 of 4 continue" in members[1].reason
    assert [w.steps for w in summary.workers[:3]] == [60, 60, 60]
    assert all(torch.isfinite(v).all() for v in saved(config).values())


def test_a_model_that_has_diverged_ends_the_run_with_one_line(threads: Runner, tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"^server 0: the model has diverged: .*; lower --lr; kept: .*summary.json$"):
        threads(config_for(tmp_path, steps=500, optimizer={"lr": 1e20}))


def test_reject_is_refused_where_nothing_is_pushed() -> None:
    with pytest.raises(ConfigError, match="--gate reject: nothing is pushed to servers under localsgd"):
        build({"run": {"scheme": "localsgd"}, "gate": {"mode": "reject"}}).check()


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
@pytest.mark.parametrize("at", [0, 4095, 100_000])
def test_the_norm_tells_of_a_single_bad_number_anywhere(bad: float, at: int) -> None:
    numbers = torch.ones(100_001)
    gate = GradientCheckPolicy().gate(norm, 1, 0, None)
    assert gate is not None
    assert gate.push(0.0, 0, Flat.wrap(numbers.clone())) is None
    numbers[at] = bad
    assert gate.push(0.0, 0, Flat.wrap(numbers)) is not None
