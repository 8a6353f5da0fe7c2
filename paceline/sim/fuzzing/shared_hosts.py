"""Of the fuzzer: a run in which workers and servers share hosts, so that a host is lost with all that is on it.

One seed in five with servers draws it. Each server is on a drawn worker's host; a server may share it with the one
that keeps its copy. The drawn faults strike these hosts, and up to four more: a host ends, is suspended or cannot be
reached, and a worker, its server and perhaps another one are away together. All that holds in the run with the drawn
faults holds here (`fuzz.go_on`, `fuzz.end`).
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from paceline.sim.cluster.model import Cluster, Fault, Host

ONE_IN = 5
"""One seed with servers in so many makes such a run."""
LOSSES_MAX = 4
LOSSES = ("crash", "crash", "pause", "mute", "reset")
"""Faults of whole hosts, to draw from."""


def draw(seed: int, cluster: Cluster, calm_s: float) -> Cluster | None:
    """Returns the cluster of the run of `seed`, with its faults before `calm_s`; None if it has no such run.

    cluster: workers on hosts of their own, and behind them one kind of host for all servers.
    """
    random = Random(f"fuzz/{seed}/shared-hosts")
    if not cluster.servers or random.randrange(ONE_IN):
        return None
    *own, apart = cluster.hosts
    homes = sorted(random.choices(range(len(own)), k=cluster.servers))  # by shard, as shards are counted through hosts
    hosts = tuple(replace(host, servers=homes.count(at)) for at, host in enumerate(own))
    where = dict(zip(_names(apart), (own[home].name for home in homes), strict=True))
    faults = [_moved(fault, where) for fault in cluster.faults]
    taken = sorted(set(homes))
    for _ in range(random.randint(1, LOSSES_MAX)):
        kind, for_s = random.choice(LOSSES), random.choice((0.3, 1.0, 2 * cluster.suspect_after_s))
        at_s = random.uniform(0.0, calm_s - for_s)
        name = own[random.choice(taken)].name
        faults.append(Fault(kind=kind, at_s=at_s, for_s=0.0 if kind == "reset" else for_s, hosts=(name,)))
    return replace(cluster, hosts=hosts, faults=tuple(faults))


def _names(apart: Host) -> list[str]:
    """Returns the names of the servers' own hosts, by shard."""
    return [f"{apart.name}-{copy}" for copy in range(apart.count)] if apart.count > 1 else [apart.name]


def _moved(fault: Fault, where: dict[str, str]) -> Fault:
    """Returns the fault on the hosts that the servers are on now."""
    return replace(fault, hosts=tuple(where.get(name, name) for name in fault.hosts))
