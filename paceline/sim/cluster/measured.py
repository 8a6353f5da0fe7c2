"""Makes a cluster of measurements of its machines: seconds of steps by device, latency and bandwidth by pair of hosts.

`paceline probe` measures, and writes what `cluster_of` returns as a cluster file. Devices are compared with the
fastest. Hosts between which a megabyte takes about as long as between the nearest two are one site; what lies
between two sites becomes a link of its own.

Example: a megabyte takes 1 ms between hosts 0 and 1, and 40 ms between either and host 2. 40 > 3 * 1, so hosts 0 and
1 are `site-1` and host 2 is `site-2`, with one link between them.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paceline.sim.cluster.model import Cluster, Device, Host, Link, NetworkSpec

WARM_UP = 0.2
"""Of a device's steps, the first ones that are left out."""
JITTER_MIN = 0.02
"""Less is noise of the measurement."""
ONE_SITE = 3.0
"""Times as long as between the nearest hosts."""
DIGITS = 3
"""Significant digits that are written to the cluster file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredHost:
    """Holds what was measured on one machine.

    steps    of each device, its name and the seconds of its steps, in the order in which they were made
    servers  how many servers it holds
    """

    name: str
    steps: tuple[tuple[str, tuple[float, ...]], ...]
    servers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLink:
    """Holds what was measured between hosts number `a` and `b`: one-way seconds, and Gbit/s in the slower direction.

    faster_gbps  Gbit/s in the other direction; 0 where it is not known
    """

    a: int
    b: int
    latency_s: float
    gbps: float
    faster_gbps: float = 0.0

    @property
    def megabyte_s(self) -> float:
        """Returns the seconds a megabyte takes: the measure by which hosts count as near or far."""
        return self.latency_s + 8e-3 / self.gbps


def median_step_s(steps: Sequence[float]) -> float:
    """Returns the median of a device's steps in seconds, without the first ones, which warm it up."""
    return statistics.median(_warm(steps))


def cluster_of(
    hosts: Sequence[MeasuredHost], links: Sequence[MeasuredLink], within: MeasuredLink | None = None, *, about: str = ""
) -> Cluster:
    """Returns a cluster with these hosts and the network that fits the links best.

    `within`: what was measured between two processes of one host, if it was. Every host needs a device or a server,
    and one host at least needs a device: the fastest median is the reference step. Latency and bandwidth of the
    network are the medians over links within sites.
    """
    step_s = min(median_step_s(steps) for host in hosts for _, steps in host.steps)
    sites = sites_of(len(hosts), links)
    made = [
        Host(name=host.name, site=sites[number], devices=_devices(host, step_s), servers=host.servers)
        for number, host in enumerate(hosts)
    ]
    inside = [link for link in links if sites[link.a] == sites[link.b]]
    network = _median(inside or list(links))
    if within is not None:
        network = replace(
            network, local_latency_s=_rounded(within.latency_s), local_bandwidth_gbps=_rounded(within.gbps)
        )
    return Cluster(
        hosts=tuple(made), about=about, step_s=_rounded(step_s), network=network, links=tuple(_between(sites, links))
    )


def sites_of(hosts: int, links: Sequence[MeasuredLink]) -> list[str]:
    """Returns the site of each host: `site`, or `site-1` and so on where there are several, in the order of the hosts.

    Hosts are joined transitively (single linkage): two hosts are of one site if a chain of near links leads from one
    to the other.
    """
    near = ONE_SITE * min((link.megabyte_s for link in links), default=0.0)
    member = list(range(hosts))
    for link in links:
        if link.megabyte_s <= near:
            # The two sites become one, under the lower number of the two.
            old, new = sorted((member[link.a], member[link.b]), reverse=True)
            member = [new if one == old else one for one in member]
    known = {number for link in links for number in (link.a, link.b)}
    # Of a host without a link nothing is known: it counts as near to the first.
    member = [one if number in known else member[0] for number, one in enumerate(member)]
    order = list(dict.fromkeys(member))
    return [f"site-{order.index(one) + 1}" if len(order) > 1 else "site" for one in member]


def _between(sites: Sequence[str], links: Sequence[MeasuredLink]) -> list[Link]:
    """Returns one link for each pair of sites that a measurement joins: the medians of latency and bandwidth across."""
    found = []
    for one, other in itertools.combinations(dict.fromkeys(sites), 2):
        across = [link for link in links if {sites[link.a], sites[link.b]} == {one, other}]
        if across:
            median = _median(across)
            found.append(Link(between=(one, other), latency_s=median.latency_s, bandwidth_gbps=median.bandwidth_gbps))
    return found


def _median(links: Sequence[MeasuredLink]) -> NetworkSpec:
    """Returns a network with the median latency and bandwidth of `links`; the default network if nothing was
    measured."""
    if not links:
        return NetworkSpec()
    latency_s = statistics.median(link.latency_s for link in links)
    return NetworkSpec(
        latency_s=_rounded(latency_s), bandwidth_gbps=_rounded(statistics.median(link.gbps for link in links))
    )


def _devices(host: MeasuredHost, step_s: float) -> tuple[Device, ...]:
    """Returns the devices of a host, equal ones as one entry with a count."""
    each = [
        Device(name=name, factor=_rounded(median_step_s(steps) / step_s), jitter=_jitter(steps))
        for name, steps in host.steps
    ]
    return tuple(replace(device, count=count) for device, count in Counter(each).items())


def _jitter(steps: Sequence[float]) -> float:
    """Returns sigma of the logarithm of a step, estimated by the middle half: a step that stalls is not jitter.

    The distance of the quartiles of a normal distribution is 1.349 sigma. Less than JITTER_MIN counts as 0, and so
    do fewer than 4 steps.
    """
    logarithms = sorted(math.log(seconds) for seconds in _warm(steps))
    if len(logarithms) < 4:
        return 0.0
    low, _, high = statistics.quantiles(logarithms, n=4)
    sigma = (high - low) / 1.349
    return round(min(sigma, 5.0), 2) if sigma >= JITTER_MIN else 0.0


def _warm(steps: Sequence[float]) -> Sequence[float]:
    """Returns the steps without the first fifth, which is slower: caches are cold and clocks rise."""
    return steps[math.ceil(WARM_UP * len(steps)) :] if len(steps) > 1 else steps


def _rounded(value: float) -> float:
    """Returns `value` to three digits, as more were not measured."""
    return float(f"{value:.{DIGITS}g}")
