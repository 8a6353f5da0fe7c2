"""A simulated cluster is made of the trace of a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from paceline.core.trace import CpuUsed, MemberChange, Span
from paceline.launch.local.train import Silent
from paceline.observe.runs.summary import write_summary
from paceline.observe.trace.trace_file import read_trace
from paceline.runtime.simulated import cluster_from_trace
from paceline.runtime.simulated.setup import SimulationSetup
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.sim.cluster.model import Cluster, Device, Host, MessageCosts, NetworkSpec
from paceline.sim.cluster.recorded_costs import RunCosts
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


LARGE = 1_000_000
"""Parameters: a vector is 4 MB."""
WAKING = NetworkSpec(local_latency_s=1e-4, local_bandwidth_gbps=cluster_from_trace.LOCAL_GBPS)


def truth(cpu_s: float, costs: MessageCosts) -> Cluster:
    """Three workers, emulated at 10, 10 and 30 ms, and a server on one host with two cores."""
    devices = tuple(Device(seconds=seconds, cpu_s=cpu_s) for seconds in (0.01, 0.01, 0.03))
    return Cluster(
        hosts=(Host(name="one", devices=devices, servers=1, cores=2),), step_s=0.01, network=WAKING, messages=costs
    )


CROWDED = truth(0.012, MessageCosts(worker_s=4e-4, worker_s_per_mb=2.5e-4, server_s=4e-4, server_s_per_mb=2.25e-4))
"""Steps and exchanges need more than there is of two cores."""
SPARE = truth(0.002, MessageCosts(worker_s=3e-4, server_s=2e-4))


def seconds_of(scheme: str, on: Cluster, length: int, out: str = "") -> float:
    """The seconds of 60 steps of each worker, in virtual time."""
    config = setting(scheme, stop={"steps": 60, "epochs": 0}, out=out, on={"slowdown": [1, 1, 3]}, cluster=on).config
    described = SimulationSetup(config=config, cluster=on, timing_only=True, model_length=length)
    return VirtualRun(described, Silent()).run(leave=bool(out)).seconds


@pytest.mark.parametrize("recorded", ["bsp", "asp", "ssp", "gsp", "esync"])
@pytest.mark.parametrize(("on", "length"), [(CROWDED, LARGE), (SPARE, 5000)], ids=["crowded", "spare"])
def test_a_contended_run_is_predicted_from_a_recording_of_another_scheme(
    on: Cluster, length: int, recorded: str, tmp_path: Path
) -> None:
    seconds_of(recorded, on, length, str(tmp_path / "run"))
    found, its_length = cluster_from_trace.cluster(tmp_path / "run")
    assert its_length == length
    assert [host.cores for host in found.hosts] == [2]
    for scheme in ("bsp", "asp", "ssp", "gsp", "esync"):
        assert seconds_of(scheme, found, length) == pytest.approx(seconds_of(scheme, on, length), rel=0.1), scheme


def test_the_contended_run_takes_longer_than_its_steps_alone() -> None:
    assert seconds_of("bsp", CROWDED, LARGE) > 1.3 * 60 * 0.03


def test_parties_of_several_hosts_share_the_cores_of_their_own() -> None:
    spans = [
        Span(at=n + 0.5, rank=r, activity="computing", seconds=0.5, steps=1, cpu=0.5) for r in (0, 1, 2) for n in (0, 1)
    ]
    used = [
        CpuUsed(at=9.0, party=party, seconds=1.5, cores=4) for party in ("worker 0", "worker 1", "worker 2", "server 0")
    ]
    workers = tuple(worker(rank, host=host, exchanges=2) for rank, host in ((0, "a"), (1, "a"), (2, "b")))
    summary = dataclasses.replace(made_up_summary(workers=0), workers=workers, step_ms=None)
    costs = RunCosts([*spans, *used], 3, 1)
    cluster = cluster_from_trace.shared_cluster(summary, costs, ["c"], "")
    assert [(host.name, host.workers, host.servers, host.cores) for host in cluster.hosts] == [
        ("a", 2, 0, 4),
        ("b", 1, 0, 4),
        ("c", 0, 1, 4),
    ]
    mixed = dataclasses.replace(summary, workers=(workers[0], workers[2], workers[1]))
    apart = cluster_from_trace.shared_cluster(mixed, costs, ["c"], "")
    assert [host.cores for host in apart.hosts] == [0, 0, 0, 0], "ranks of hosts are mixed: nobody shares"


def test_the_hosts_of_servers_are_those_they_joined_from() -> None:
    joined = [
        MemberChange(at=0.0, party="worker 0", event="joined", host="a"),
        MemberChange(at=0.0, party="server 0", event="joined", host="b"),
        MemberChange(at=0.0, party="server 1", event="joined", host="a"),
    ]
    assert cluster_from_trace.server_hosts(joined) == ["b", "a"]
