"""A cluster made of measurements of its machines: seconds of steps by device, latency and bandwidth by pair of hosts.

Devices are compared with the fastest. Hosts between which a megabyte takes about as long as between the nearest two are
one site; what lies between two sites becomes a link of its own.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredHost:
    """One machine. `steps`: by device, its name and the seconds of its steps in order; `servers`: how many it holds."""

    name: str
    steps: tuple[tuple[str, tuple[float, ...]], ...]
    servers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLink:
    """Between hosts number `a` and `b`: one way, and what comes through in the slower direction."""

    a: int
    b: int
    latency_s: float
    gbps: float

    @property
    def megabyte_s(self) -> float:
        return self.latency_s + 8e-3 / self.gbps


def median_step_s(steps: Sequence[float]) -> float:
    """The median of a device's steps, without those that warm it up."""
    return statistics.median(_warm(steps))


def cluster_of(
    hosts: Sequence[MeasuredHost], links: Sequence[MeasuredLink], within: MeasuredLink | None = None, *, about: str = ""
) -> Cluster:
    """`within`: between two processes of one host, where that was measured. Every host has a device or a server."""
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
    """The site of each host: `site`, or `site-1` and so on where there are several, in the order of the hosts."""
    near = ONE_SITE * min((link.megabyte_s for link in links), default=0.0)
    member = list(range(hosts))
    for link in links:
        if link.megabyte_s <= near:
            old, new = sorted((member[link.a], member[link.b]), reverse=True)
            member = [new if one == old else one for one in member]
    known = {number for link in links for number in (link.a, link.b)}
    # Of a host without a link nothing is known: it counts as near to the first.
    member = [one if number in known else member[0] for number, one in enumerate(member)]
    order = list(dict.fromkeys(member))
    return [f"site-{order.index(one) + 1}" if len(order) > 1 else "site" for one in member]


def _between(sites: Sequence[str], links: Sequence[MeasuredLink]) -> list[Link]:
    found = []
    for one, other in itertools.combinations(dict.fromkeys(sites), 2):
        across = [link for link in links if {sites[link.a], sites[link.b]} == {one, other}]
        if across:
            median = _median(across)
            found.append(Link(between=(one, other), latency_s=median.latency_s, bandwidth_gbps=median.bandwidth_gbps))
    return found


def _median(links: Sequence[MeasuredLink]) -> NetworkSpec:
    if not links:
        return NetworkSpec()
    latency_s = statistics.median(link.latency_s for link in links)
    return NetworkSpec(
        latency_s=_rounded(latency_s), bandwidth_gbps=_rounded(statistics.median(link.gbps for link in links))
    )


def _devices(host: MeasuredHost, step_s: float) -> tuple[Device, ...]:
    """Equal ones together."""
    each = [
        Device(name=name, factor=_rounded(median_step_s(steps) / step_s), jitter=_jitter(steps))
        for name, steps in host.steps
    ]
    return tuple(replace(device, count=count) for device, count in Counter(each).items())


def _jitter(steps: Sequence[float]) -> float:
    """Sigma of the logarithm, of the middle half: a step that stalls is not jitter."""
    logarithms = sorted(math.log(seconds) for seconds in _warm(steps))
    if len(logarithms) < 4:
        return 0.0
    low, _, high = statistics.quantiles(logarithms, n=4)
    sigma = (high - low) / 1.349
    return round(min(sigma, 5.0), 2) if sigma >= JITTER_MIN else 0.0


def _warm(steps: Sequence[float]) -> Sequence[float]:
    return steps[math.ceil(WARM_UP * len(steps)) :] if len(steps) > 1 else steps


def _rounded(value: float) -> float:
    """To three digits, as more were not measured."""
    return float(f"{value:.{DIGITS}g}")
