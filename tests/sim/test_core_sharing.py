"""Steps and messages that wait for cores and for the process that takes them in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.errors import ConfigError
from paceline.core.scheme import make
from paceline.core.trace import Record, Span
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps, Simulation
from paceline.sim.cluster.model import Cluster, Device, Fault, Host, MessageCosts, NetworkSpec
from paceline.sim.kernel.vectors import CountedGhost, PassCounter

LENGTH = 250_000
"""Parameters: a vector is a megabyte."""
NOTHING = NetworkSpec(latency_s=0.0, local_latency_s=0.0, bandwidth_gbps=1e9, local_bandwidth_gbps=1e9)


def cluster(workers: int = 3, cores: int = 2, **of_device: Any) -> Cluster:
    device = Device(**{"count": workers, "cpu_s": 0.008, "seconds": 0.01} | of_device)
    host = Host(name="all", devices=(device,), servers=1, cores=cores)
    return Cluster(hosts=(host,), step_s=0.01, network=NOTHING)


def simulated(scheme: str, on: Cluster, **more: Any) -> Simulation:
    work = LocalSteps(lambda rank, rng: on.step_s)
    return Simulation(make(scheme, {}), Ghost(LENGTH), work, cluster=on, **more)


def spans(scheme: str, on: Cluster, until: float = 1.0) -> list[Span]:
    records: list[Record] = []
    simulated(scheme, on, trace=records.append).run(until=until)
    return [record for record in records if isinstance(record, Span) and record.steps]


def test_steps_that_leave_cores_free_take_their_own_time() -> None:
    assert {round(span.seconds, 9) for span in spans("asp", cluster(2))} == {0.01}


def test_more_steps_than_cores_wait_for_one_another() -> None:
    """Three need 24 ms of cores for a step each, which two cores give in 12 ms."""
    found = spans("bsp", cluster(3))
    last = [max(span.seconds for span in found[n : n + 3]) for n in range(0, len(found) - 2, 3)]
    assert min(last) >= 0.012 - 1e-9
    assert max(last) <= 0.016 + 1e-9
    assert {span.cpu for span in found} == {0.008}


def test_servers_take_messages_in_one_after_the_other() -> None:
    """Four workers on cores of their own, and a server that needs 5 ms for each exchange: 200 exchanges a second."""
    hosts = (
        Host(name="w", count=4, devices=(Device(seconds=0.001, cpu_s=0.001),), cores=1),
        Host(name="s", servers=1, cores=4),
    )
    on = Cluster(
        hosts=hosts, step_s=0.001, network=NOTHING, messages=MessageCosts(server_s=0.001, server_s_per_mb=0.0015)
    )
    sim = simulated("asp", on).run(until=10.0)
    assert sum(sim.steps) == pytest.approx(2000, rel=0.01)
    assert sim.sharing is not None
    assert sim.sharing.used["server 0"] == pytest.approx(10.0, rel=0.01)


def test_a_worker_works_for_its_messages_before_and_after_their_way() -> None:
    on = replace(cluster(1), messages=MessageCosts(worker_s=0.002, worker_s_per_mb=0.003))
    sim = simulated("asp", on).run(until=10.0)
    assert sum(sim.steps) == pytest.approx(10.0 / (0.01 + 2 * 0.005), rel=0.01)


def test_means_among_workers_cost_them_core_seconds() -> None:
    free = simulated("localsgd", cluster(2), mean="ring").run(until=5.0)
    busy = simulated("localsgd", replace(cluster(2), messages=MessageCosts(worker_s=0.02)), mean="ring").run(until=5.0)
    assert sum(busy.steps) < sum(free.steps)


def test_a_worker_that_leaves_is_gone_after_its_last_messages() -> None:
    on = replace(cluster(3), messages=MessageCosts(worker_s=0.05))
    for scheme in ("gsp", "esync", "asp", "bsp"):
        sim = simulated(scheme, on)
        sim.run(until=1.0)
        sim.leave(1)
        before = sim.run(until=2.0).steps[1]
        assert sim.run(until=3.0).steps[1] == before
        assert sim.steps[0] > 0


def test_one_seed_gives_one_run() -> None:
    on = replace(cluster(3, jitter=0.1), messages=MessageCosts(worker_s=0.002, server_s=0.001))
    assert spans("ssp", on) == spans("ssp", on)


def test_a_cluster_without_cores_goes_other_ways() -> None:
    sim = simulated("bsp", cluster(3, cores=0))
    assert sim.sharing is None
    assert list(sim.cpu_used(1.0)) == []


def test_faults_that_stop_time_do_not_go_with_cores() -> None:
    pause = Fault(kind="pause", at_s=1.0, for_s=1.0, hosts=("all",))
    with pytest.raises(ConfigError, match="pause: not with cores of hosts"):
        replace(cluster(), faults=(pause,))


def test_what_roles_and_local_optimizers_compute_takes_core_seconds() -> None:
    """A step passes over a MB, which is then copied; x - w and w + d are two passes more; the mean is loaded."""
    costs = MessageCosts(worker_s_per_mb=0.001, server_s_per_mb=0.0005)
    on = replace(cluster(1, cores=0), messages=costs)
    work = LocalSteps(lambda rank, rng: on.step_s)
    ghost = CountedGhost(LENGTH, PassCounter())
    sim = Simulation(make("localsgd", {"tau": 1}), ghost, work, cluster=on, mean="ring").run(until=1.0)
    assert sim.sharing is not None
    steps = sum(sim.steps)
    assert sim.sharing.arithmetic_bytes == pytest.approx(2 * 1e6 * steps, abs=2e6)
    assert sim.sharing.used["worker 0"] / steps == pytest.approx(0.008 + 0.001 + 0.001 + 2 * 0.001 + 0.001, rel=0.05)
