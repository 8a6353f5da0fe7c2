"""Workers are grouped by the links between their hosts."""

from __future__ import annotations

import pytest

from paceline.sim.cluster.measured import MeasuredHost, MeasuredLink, cluster_of
from paceline.sim.cluster.model import Cluster, Device, Host, Link, NetworkSpec
from paceline.sim.cluster.near_hosts import groups_by_links, megabyte_s
from paceline.sim.cluster.toml_file import load

TWO = (Device(count=2),)


def three_sites(slow: float, fast: float) -> Cluster:
    """Sites x and y are joined by a link of `fast` Gbit/s, and z to both by one of `slow`."""
    hosts = tuple(Host(name=site, site=site, count=2, devices=TWO) for site in "xyz")
    links = (("x", "y", fast), ("x", "z", slow), ("y", "z", slow))
    return Cluster(
        hosts=hosts,
        network=NetworkSpec(bandwidth_gbps=10.0),
        links=tuple(Link(between=(a, b), latency_s=0.0, bandwidth_gbps=gbps) for a, b, gbps in links),
    )


def test_sites_behind_thin_links_are_groups_of_their_own_and_those_behind_fast_ones_are_not() -> None:
    assert groups_by_links(three_sites(slow=0.1, fast=10.0)) == (tuple(range(8)), tuple(range(8, 12)))
    each = (tuple(range(4)), tuple(range(4, 8)), tuple(range(8, 12)))
    assert groups_by_links(three_sites(slow=0.1, fast=0.1)) == each


def test_a_chain_of_near_hosts_is_one_group() -> None:
    chain = three_sites(slow=4.0, fast=4.0)  # a megabyte takes 2.1 ms between sites and 0.9 ms within
    ways = {megabyte_s(chain, a, b) for a in chain.hosts for b in chain.hosts}
    assert max(ways) < 3 * min(ways)
    assert groups_by_links(chain) == tuple((2 * host, 2 * host + 1) for host in range(6)), "all are near: by host"


def test_hosts_with_thin_cards_of_their_own_are_far_from_everybody() -> None:
    hosts = (Host(name="wide", count=3, devices=TWO), Host(name="thin", count=2, devices=TWO, bandwidth_gbps=0.01))
    assert groups_by_links(Cluster(hosts=hosts)) == (tuple(range(6)), (6, 7), (8, 9))
    assert len(groups_by_links(load("phones-10000"))) == 3001


@pytest.mark.parametrize("workers", [1, 4])
def test_one_host_is_as_by_place(workers: int) -> None:
    only = Cluster(hosts=(Host(name="only", devices=(Device(count=workers),)),))
    assert groups_by_links(only) == {1: ((0,),), 4: ((0, 1), (2, 3))}[workers]


def test_what_probe_has_measured_groups_hosts_as_its_sites_do() -> None:
    hosts = [MeasuredHost(name=name, steps=(("cpu", (0.1,) * 8),) * 2) for name in "abcd"]
    far = {(0, 2), (0, 3), (1, 2), (1, 3)}
    links = [
        MeasuredLink(a=a, b=b, latency_s=0.02 if (a, b) in far else 1e-4, gbps=0.1 if (a, b) in far else 9.0)
        for a in range(4)
        for b in range(a + 1, 4)
    ]
    assert groups_by_links(cluster_of(hosts, links)) == ((0, 1, 2, 3), (4, 5, 6, 7))
