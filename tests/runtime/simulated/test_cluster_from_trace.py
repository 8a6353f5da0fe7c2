"""A simulated cluster is made of the trace of a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from paceline.core.trace import Span
from paceline.launch.local.train import Silent
from paceline.observe.runs.summary import write_summary
from paceline.observe.trace.trace_file import read_trace
from paceline.runtime.simulated import cluster_from_trace
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.sim.cluster.model import NetworkSpec
from tests.observe.fake_runs import summary as made_up_summary
from tests.observe.fake_runs import worker
from tests.runtime.simulated.virtual_runs import run, setting

FAST = NetworkSpec(latency_s=1e-4, bandwidth_gbps=10.0)


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
