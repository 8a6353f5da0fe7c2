"""Groups the workers of a cluster by the links between their hosts: near ones are in one group.

Two hosts are near if a megabyte takes at most `ONE_SITE` times as long between them as between the two nearest hosts.
All that a chain of near hosts joins is one group. `paceline probe` finds sites by this rule (`measured.sites_of`); here
it holds between the sites of a file, too, and a host with a thin card of its own is far from everybody. Hosts of one
table of the file are alike, so tables are compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from paceline.core.adaptive.grouping import Groups
from paceline.core.tiers.rank_groups import groups_by_place
from paceline.sim.cluster.measured import ONE_SITE
from paceline.sim.cluster.model import Cluster, Host


def groups_by_links(cluster: Cluster) -> Groups:
    """Returns ranks by group; where all hosts are near one another, the groups of `auto`, by host."""
    hosts = [host for host in cluster.hosts if host.workers]
    pairs = [
        (megabyte_s(cluster, hosts[a], hosts[b]), a, b)
        for a, b in itertools.combinations_with_replacement(range(len(hosts)), 2)
        if a != b or hosts[a].count > 1
    ]
    near = ONE_SITE * min((seconds for seconds, _, _ in pairs), default=0.0)
    joined = _joined(len(hosts), [(a, b) for seconds, a, b in pairs if seconds <= near])
    alone = {a for seconds, a, b in pairs if a == b and seconds > near and joined.count(joined[a]) == 1}
    places = [
        f"{joined[number]}-{copy if number in alone else 0}"
        for number, host in enumerate(hosts)
        for copy in range(host.count)
        for _ in range(host.workers)
    ]
    if len(set(places)) == 1:  # all are near
        hosts_by_rank = [placement.host_name for placement in cluster.worker_placements()]
        return groups_by_place(hosts_by_rank, (), cluster.workers)
    by_place: dict[str, list[int]] = {}
    for rank, place in enumerate(places):
        by_place.setdefault(place, []).append(rank)
    return tuple(map(tuple, by_place.values()))


def megabyte_s(cluster: Cluster, one: Host, other: Host) -> float:
    """Returns the seconds that a megabyte takes between two hosts: the latency of the way, and its thinnest part."""
    network = cluster.network
    latency_s = network.latency_s + one.latency_s + other.latency_s
    gbps = min(host.bandwidth_gbps or network.bandwidth_gbps for host in (one, other))
    for link in cluster.links if one.site != other.site else ():
        if set(link.between) == {one.site, other.site}:
            latency_s, gbps = latency_s + link.latency_s, min(gbps, link.bandwidth_gbps)
    return latency_s + 8e-3 / gbps


def _joined(count: int, near: Sequence[tuple[int, int]]) -> list[int]:
    """Returns for each number the least one that a chain of near pairs leads to."""
    member = list(range(count))
    for a, b in near:
        old, new = sorted((member[a], member[b]), reverse=True)
        member = [new if one == old else one for one in member]
    return member
