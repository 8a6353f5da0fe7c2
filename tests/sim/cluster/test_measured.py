"""A cluster made of measurements: devices against the fastest, hosts that are near one another in one site."""

from __future__ import annotations

import pytest

from paceline.sim import examples, load
from paceline.sim.cluster.measured import MeasuredHost, MeasuredLink, cluster_of, sites_of
from paceline.sim.cluster.toml_file import parse, text_of


def host(name: str, *steps: float, servers: int = 0) -> MeasuredHost:
    """A host whose devices take so long for a step, but for the first of each."""
    return MeasuredHost(name=name, steps=tuple(("cpu", (9.0, *[s] * 9)) for s in steps), servers=servers)


def link(a: int, b: int, ms: float = 0.1, gbps: float = 10.0) -> MeasuredLink:
    return MeasuredLink(a=a, b=b, latency_s=ms / 1000, gbps=gbps)


def test_devices_are_compared_with_the_fastest_and_equal_ones_stand_together() -> None:
    cluster = cluster_of([host("a", 0.02, 0.02, servers=1), host("b", 0.06)], [link(0, 1)])
    assert cluster.step_s == 0.02
    assert [(d.count, d.factor) for h in cluster.hosts for d in h.devices] == [(2, 1.0), (1, 3.0)]
    assert cluster.seconds_per_step() == pytest.approx((0.02, 0.02, 0.06))
    assert (cluster.workers, cluster.servers) == (3, 1)


def test_first_steps_and_single_stalls_count_for_nothing() -> None:
    steps = (5.0, 1.0, *[0.1] * 20, 7.0, *[0.1] * 20)
    cluster = cluster_of([MeasuredHost(name="a", steps=(("cpu", steps),))], [])
    assert (cluster.step_s, cluster.hosts[0].devices[0].jitter) == (0.1, 0.0)


def test_steps_that_differ_all_the_time_are_jitter() -> None:
    steps = tuple(0.1 * (1.3 if number % 2 else 1.0) for number in range(40))
    (device,) = cluster_of([MeasuredHost(name="a", steps=(("cpu", steps),))], []).hosts[0].devices
    assert 0.1 < device.jitter < 0.3


def test_equal_links_are_the_network_of_one_site() -> None:
    cluster = cluster_of([host("a", 1.0), host("b", 1.0), host("c", 1.0)], [link(0, 1), link(0, 2), link(1, 2, gbps=9)])
    assert {h.site for h in cluster.hosts} == {"site"}
    assert (cluster.network.latency_s, cluster.network.bandwidth_gbps, cluster.links) == (1e-4, 10.0, ())


def test_hosts_far_from_the_others_are_another_site_with_a_link_between() -> None:
    far = [link(a, b, ms=40, gbps=0.2) for a in (0, 1) for b in (2, 3)]
    cluster = cluster_of([host(name, 1.0) for name in "abcd"], [link(0, 1), link(2, 3), *far])
    assert [h.site for h in cluster.hosts] == ["site-1", "site-1", "site-2", "site-2"]
    assert cluster.network.bandwidth_gbps == 10.0
    assert [(one.between, one.latency_s, one.bandwidth_gbps) for one in cluster.links] == [
        (("site-1", "site-2"), 0.04, 0.2)
    ]


def test_a_host_without_a_measured_link_counts_as_near() -> None:
    assert sites_of(3, [link(0, 1)]) == ["site"] * 3
    assert sites_of(1, []) == ["site"]


def test_what_lies_between_processes_of_one_host_is_kept_apart() -> None:
    network = cluster_of([host("a", 1.0)], [], link(0, 0, ms=0.02, gbps=80.0)).network
    assert (network.local_latency_s, network.local_bandwidth_gbps) == (2e-5, 80.0)
    assert network.bandwidth_gbps == 10.0  # as by default


@pytest.mark.parametrize("name", examples())
def test_a_cluster_is_written_as_it_is_read(name: str) -> None:
    cluster = load(name)
    assert parse(text_of(cluster), name, cluster.name) == cluster
