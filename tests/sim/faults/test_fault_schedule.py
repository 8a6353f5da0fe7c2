"""What happens to a cluster: faults, leases, preemption, joins and leaves."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.trace import Record
from paceline.sim import Cluster
from paceline.sim.cluster.model import Device, Fault, Host, Link, Spot
from tests.sim.faults.faulty import news, simulate, with_fault


def test_a_pause_stops_what_is_on_the_host_for_so_long() -> None:
    assert with_fault(kind="pause", at_s=20.5, for_s=7.0, hosts=("workers-1",)).steps == [100, 93, 100]
    assert with_fault(kind="pause", at_s=20.5, for_s=7.0, hosts=("servers",)).steps == [93, 93, 93]


def test_a_clogged_card_delays_messages_but_not_steps() -> None:
    sim = with_fault(kind="clog", at_s=20.5, for_s=7.0, hosts=("workers-1",))
    assert sim.steps == [100, 93, 100]


def test_a_slow_disk_makes_steps_longer_while_it_lasts() -> None:
    sim = with_fault(kind="slow-disk", at_s=20.5, for_s=40.0, extra_s=1.0, hosts=("workers-1",))
    assert sim.steps == [100, 80, 100]


def two_sites(for_s: float) -> Cluster:
    far = Host(name="far", site="far", devices=(Device(count=2),))
    near = Host(name="near", site="near", devices=(Device(count=2),), servers=1)
    link = Link(between=("near", "far"), latency_s=0.01, bandwidth_gbps=1.0)
    cut = Fault(kind="partition", at_s=20.5, for_s=for_s, sites=("far",))
    return Cluster(hosts=(near, far), links=(link,), faults=(cut,), suspect_after_s=10.0)


def test_a_short_partition_holds_messages_back() -> None:
    records: list[Record] = []
    sim = simulate(two_sites(6.0), "asp", trace=records.append)
    assert sim.steps[:2] == [100, 100]
    assert 90 <= sim.steps[2] <= 94
    assert news(records) == []


def test_a_long_partition_costs_the_leases_of_those_who_do_not_see_the_coordinator() -> None:
    records: list[Record] = []
    sim = simulate(two_sites(30.0), "bsp", trace=records.append)
    lost, joined = news(records)[:2], news(records)[2:]
    assert sorted(lost) == [("lost", "worker 2"), ("lost", "worker 3")]
    assert sorted(joined) == [("returned", "worker 2"), ("returned", "worker 3")]
    assert 85 <= sim.steps[0] <= 92
    assert 60 <= sim.steps[2] <= 70


def test_spot_workers_are_taken_away_and_come_back() -> None:
    spot = Host(name="spot", count=20, devices=(Device(),), spot=Spot(life_s=50.0, away_s=10.0))
    cluster = Cluster(hosts=(spot, Host(name="server", servers=1)), suspect_after_s=2.0)
    records: list[Record] = []
    sim = simulate(cluster, "asp", until=1000.0, trace=records.append)
    lost = sum(event == "lost" for event, _ in news(records))
    joined = sum(event == "returned" for event, _ in news(records))
    assert 0 <= lost - joined <= 20
    assert 20 * 1000 / 60 * 0.8 < lost < 20 * 1000 / 60 * 1.2
    assert sum(sim.steps) / 20_000 == pytest.approx(50 / 60, abs=0.06)


def test_spot_times_may_be_given() -> None:
    host = Host(name="spot", devices=(Device(),), spot=Spot(times_s=(20.5, 60.5), away_s=1.0))
    cluster = Cluster(hosts=(host, Host(name="rest", devices=(Device(),), servers=1)), suspect_after_s=2.0)
    records: list[Record] = []
    simulate(cluster, trace=records.append)
    assert [event for event, _ in news(records)] == ["lost", "returned", "lost", "returned"]


DIGEST = """
import hashlib
from tests.sim.faults.test_fault_schedule import digest
print(digest())
"""


def digest() -> str:
    """Of everything that is written about a run in which everything is drawn."""
    spot = Host(name="spot", count=6, devices=(Device(jitter=0.3),), spot=Spot(life_s=30.0, away_s=5.0))
    server = Host(name="server", count=2, servers=1)
    cluster = Cluster(hosts=(spot, server), suspect_after_s=2.0, skew_s=1.0)
    lines: list[str] = []
    for scheme in ("ssp", "esync", "gosgd", "gsp"):
        sim = simulate(cluster, scheme, until=200.0, seed=5, trace=lambda record: lines.append(repr(record)))
        lines.append(f"{sim.events} {sim.now} {sim.steps}")
    assert len(lines) > 1000
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def test_a_run_does_not_depend_on_how_the_process_hashes() -> None:
    def elsewhere(seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", DIGEST], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    assert elsewhere("1") == elsewhere("2") == digest()
