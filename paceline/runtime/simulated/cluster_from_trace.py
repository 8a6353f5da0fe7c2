"""Makes a cluster of what a run has left: how long each worker's steps took, and what an exchange cost.

Where the trace has core seconds, steps and exchanges are known as they are alone (`sim/cluster/recorded_costs.py`),
and all that ran on one host shares its cores: what had to wait for a core, a server or others comes about again in the
simulation.

An older trace has no core seconds. Then a step time is taken as it is, worker by worker, and the network from the
sums: what a worker lost with each exchange beyond its own steps. A worker that waits for others loses more than the
exchange, so the one that lost least is believed; under a scheme in which all wait for one that is the slowest.

Example of the latter: a run of 100 s, 2 workers, 200 exchanges each; they computed for 60 s and 90 s. They lost 0.2 s
and 0.05 s with each exchange. 0.05 s is believed; of that, what was spent receiving gives the bandwidth, and half of
the rest is the latency.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from paceline.core.errors import ConfigError
from paceline.core.trace import MemberChange, Record, Span
from paceline.observe.runs.summary import SUMMARY, Summary, WorkerSummary, read_summary
from paceline.observe.trace.trace_file import TRACE, read_trace
from paceline.runtime.simulated.role_vectors import RoleVectors
from paceline.sim.cluster.model import Cluster, Device, Host, MessageCosts, NetworkSpec
from paceline.sim.cluster.recorded_costs import ExchangeCosts, RunCosts

STEPS_MAX = 4096
"""Recorded steps that are kept of each worker; they are played in a loop."""
WAKING_S = 5e-4
"""Seconds of an exchange within a host, at most, in which no core works for it: processes are woken."""
LOCAL_GBPS = 1e4
"""Of a host whose messages cost core seconds: their bytes have no other way."""


def cluster(run: Path) -> tuple[Cluster, int]:
    """Returns the cluster of the run in that folder, and the size of its model, 0 if unknown.

    Raises PacelineError when the folder has no trace, ConfigError when the trace has no step of some worker.
    """
    summary, records = read_summary(run / SUMMARY), list(read_trace(run / TRACE))
    steps = step_seconds(records, len(summary.workers))
    for rank, recorded in enumerate(steps):
        if not recorded:
            raise ConfigError(f"--from {run}: worker {rank} finished no step in that run; take a longer one")
    costs = RunCosts(records, len(summary.workers), summary.servers)
    if costs.known:
        return shared_cluster(summary, costs, server_hosts(records), f"as recorded in {run}"), summary.model_length
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


def server_hosts(records: Iterable[Record]) -> list[str]:
    """Returns the names of the hosts of the servers that joined, one for each."""
    joined = {r.party: r.host for r in records if isinstance(r, MemberChange) and r.event == "joined"}
    return [host for party, host in joined.items() if party.startswith("server ")]


def shared_cluster(summary: Summary, costs: RunCosts, servers: Sequence[str], about: str) -> Cluster:
    """Returns hosts with cores, devices that use them and messages that cost; `servers`: the host of each."""
    exchange, vectors = costs.exchange(), RoleVectors.of(summary)
    model_mb = 4e-6 * summary.model_length
    messages = message_costs(summary, exchange, vectors.per_exchange * model_mb)
    local_s = messages.pass_s_per_mb * model_mb if vectors.local_steps else 0.0
    devices = [_device(worker, costs, summary.step_ms, local_s) for worker in summary.workers]
    runs = [(name, [w.rank for w in run]) for name, run in groupby(summary.workers, key=lambda worker: worker.host)]
    names = [name for name, _ in runs]
    if "" in names or len(set(names)) < len(names) or len(servers) != summary.servers:
        # Who runs beside whom is not known, or ranks of hosts are mixed, which a cluster cannot say: nobody shares.
        hosts = [Host(name=f"worker-{rank}", devices=(device,)) for rank, device in enumerate(devices)]
        hosts += [Host(name="servers", count=summary.servers, servers=1)] if summary.servers else []
    else:
        hosts = [
            Host(
                name=name,
                cores=costs.cores,
                servers=servers.count(name),
                devices=tuple(devices[rank] for rank in ranks),
            )
            for name, ranks in runs
        ]
        others = [name for name in dict.fromkeys(servers) if name not in names]
        hosts += [Host(name=name, cores=costs.cores, servers=servers.count(name)) for name in others]
    means = [statistics.fmean(device.trace or (device.seconds,)) for device in devices]
    step_s = summary.step_ms / 1000 if summary.step_ms else min(means)
    return Cluster(hosts=tuple(hosts), about=about, step_s=step_s, network=way(summary, exchange), messages=messages)


def _device(worker: WorkerSummary, costs: RunCosts, step_ms: float | None, local_s: float) -> Device:
    """Returns the device of a worker: its own seconds by step, and the core seconds of a step.

    `local_s`: of these, those of its own optimizer, which the simulation adds where a scheme trains locally.
    """
    own = costs.own_seconds(worker.rank, (step_ms or 0.0) / 1000 * worker.slowdown)[:STEPS_MAX]
    cpu_s, threads = costs.step_cpu_s(worker.rank), costs.threads(worker.rank)
    cpu_s = max(cpu_s / 2, cpu_s - local_s)
    if len(own) == 1:
        return Device(name=worker.device, seconds=own[0], cpu_s=cpu_s, threads=threads)
    return Device(name=worker.device, trace=tuple(own), cpu_s=cpu_s, threads=threads)


def message_costs(summary: Summary, exchange: ExchangeCosts, computed_mb: float) -> MessageCosts:
    """Returns the costs of messages; an exchange is one of them each way, between a worker and each server.

    `computed_mb`: megabytes of vectors that the role of a worker computes for an exchange.
    """
    exchanges = max(1, sum(worker.exchanges for worker in summary.workers))
    up_mb, down_mb = (nbytes / 1e6 / exchanges for nbytes in (summary.bytes_up, summary.bytes_down))
    return exchange.messages(up_mb, down_mb, 4e-6 * summary.model_length, summary.servers, computed_mb)


def way(summary: Summary, exchange: ExchangeCosts) -> NetworkSpec:
    """Returns a network whose way takes what is left of an exchange.

    On one host bytes move while a core copies them, so that all of it is latency. Between hosts the time spent
    receiving gives the bandwidth, as in `network`.
    """
    usual = NetworkSpec()
    local_s = min(exchange.way_s, WAKING_S) / 2
    active = [worker for worker in summary.workers if worker.exchanges]
    if len({worker.host for worker in summary.workers}) == 1 or not active:
        return NetworkSpec(local_latency_s=local_s, local_bandwidth_gbps=LOCAL_GBPS)
    nbytes = (summary.bytes_up + summary.bytes_down) / sum(worker.exchanges for worker in active)
    receiving_s = min(worker.seconds_communicating / worker.exchanges for worker in active)
    moving_s = min(exchange.way_s, receiving_s)
    gbps = nbytes * 8e-9 / moving_s if nbytes and moving_s else usual.bandwidth_gbps
    return NetworkSpec(latency_s=(exchange.way_s - moving_s) / 2, bandwidth_gbps=gbps)


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
