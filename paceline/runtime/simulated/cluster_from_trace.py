"""Makes a cluster of what a run has left: how long each worker's steps took, and what an exchange cost.

A step time is taken from the trace as it is, worker by worker. The network is taken from the sums: what a worker
lost with each exchange beyond its own steps. A worker that waits for others loses more than the exchange, so the one
that lost least is believed; under a scheme in which all wait for one that is the slowest.

Example: a run of 100 s, 2 workers, 200 exchanges each; they computed for 60 s and 90 s. They lost 0.2 s and 0.05 s
with each exchange. 0.05 s is believed; of that, what was spent receiving gives the bandwidth, and half of the rest
is the latency.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from pathlib import Path

from paceline.core.errors import ConfigError
from paceline.core.trace import Record, Span
from paceline.observe.runs.summary import SUMMARY, Summary, WorkerSummary, read_summary
from paceline.observe.trace.trace_file import TRACE, read_trace
from paceline.sim.cluster.model import Cluster, Device, Host, NetworkSpec

STEPS_MAX = 4096
"""Recorded steps that are kept of each worker; they are played in a loop."""


def cluster(run: Path) -> tuple[Cluster, int]:
    """Returns the cluster of the run in that folder, and the size of its model, 0 if unknown.

    Raises PacelineError when the folder has no trace, ConfigError when the trace has no step of some worker.
    """
    summary = read_summary(run / SUMMARY)
    steps = step_seconds(read_trace(run / TRACE), len(summary.workers))
    for rank, recorded in enumerate(steps):
        if not recorded:
            raise ConfigError(f"--from {run}: worker {rank} finished no step in that run; take a longer one")
    means = [statistics.fmean(recorded) for recorded in steps]
    hosts = [
        Host(name=f"worker-{w.rank}", devices=(Device(name=w.device, trace=tuple(steps[w.rank])),))
        for w in summary.workers
    ]
    if summary.servers:
        hosts.append(Host(name="servers", count=summary.servers, servers=1))
    step_s = summary.step_ms / 1000 if summary.step_ms else min(means)
    about = f"as recorded in {run}"
    return Cluster(hosts=tuple(hosts), about=about, step_s=step_s, network=network(summary)), summary.model_length


def step_seconds(records: Iterable[Record], workers: int) -> list[list[float]]:
    """Returns by rank the seconds of the first STEPS_MAX steps, float.

    A record may hold several steps; then their mean stands for all of them.
    """
    steps: list[list[float]] = [[] for _ in range(workers)]
    for record in records:
        if isinstance(record, Span) and record.steps and len(steps[record.rank]) < STEPS_MAX:
            steps[record.rank].append(record.seconds / record.steps)
    return steps


def network(summary: Summary) -> NetworkSpec:
    """Returns latency and bandwidth under which an exchange costs what it cost.

    One run with one size of message cannot tell the two apart: the time that was spent receiving gives the
    bandwidth, the rest is latency, there and back. Without bytes on record (collectives) all of it is latency.
    """
    active = [w for w in summary.workers if w.exchanges]
    if not active:
        return NetworkSpec()
    least = min(active, key=lambda worker: lost(worker, summary.seconds))
    cost_s = lost(least, summary.seconds)
    nbytes = (summary.bytes_up + summary.bytes_down) / sum(w.exchanges for w in active)
    moving_s = min(cost_s, least.seconds_communicating / least.exchanges)
    gbps = nbytes * 8e-9 / moving_s if nbytes and moving_s else NetworkSpec().bandwidth_gbps
    return NetworkSpec(latency_s=max(0.0, cost_s - moving_s) / 2, bandwidth_gbps=gbps)


def lost(worker: WorkerSummary, seconds: float) -> float:
    """Returns the seconds of an exchange beyond the worker's own steps."""
    return max(0.0, seconds - worker.seconds_computing) / max(1, worker.exchanges)
