"""Of the fuzzer: a run of three or four servers with copies, which lose servers when it hurts most.

Each seed draws it under schemes whose servers can be replaced. The drawn faults strike, and also: whenever a server
is lost, and whenever all are back, another one or the same one may end a moment later. So neighbours are away
together, keepers are new and have no copy yet, and servers are lost between an update and its copy. All that holds in
the run with the drawn faults holds here (`fuzz.go_on`, `fuzz.end`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from paceline.core.scheme import Scheme
from paceline.sim.cluster.model import Cluster, Fault
from paceline.sim.faults.servers.recoverable_server import can_be_replaced
from paceline.sim.simulation import Simulation

LOSSES_MAX = 6
"""Servers that are lost because another one was, or is back."""
AFTER_S = (0.0, 0.02, 0.3, 2.0)
"""Longest times between that and the loss."""


def draw(seed: int, scheme: Scheme, cluster: Cluster) -> Cluster | None:
    """Returns the cluster of the run of `seed`, with at least three servers and their copies; None without a run."""
    random = Random(f"fuzz/{seed}/server-losses")
    if cluster.hazards is None or not cluster.servers:
        return None
    servers = random.randint(max(3, cluster.servers), 4)
    try:
        scheme.check(cluster.workers, servers)
    except ValueError:
        return None
    if not can_be_replaced(scheme, servers) or scheme.answers_what_no_copy_has:
        return None
    hazards = replace(cluster.hazards, servers_keep="replica", snapshot_every_s=random.choice((1.0, 5.0)))
    hosts = tuple(replace(host, count=servers, servers=1) if host.servers else host for host in cluster.hosts)
    faults = tuple(_on_one(fault) for fault in cluster.faults)
    return replace(cluster, hosts=hosts, hazards=hazards, faults=faults)


def _on_one(fault: Fault) -> Fault:
    """Returns the fault; where it was drawn for the only server, it is for the first one now."""
    return replace(fault, hosts=("servers-0",)) if fault.hosts == ("servers",) else fault


def losing(sim: Simulation, calm_s: float) -> Callable[[Simulation], bool]:
    """Returns what is to be called after each event: it lets servers end, until `calm_s`, and never stops the run."""
    random = Random(f"{sim.seed}/server-losses")
    servers, recovery = sim.members.servers, sim.members.machine.recovery
    assert servers is not None
    seen, left = 0, LOSSES_MAX

    def ends(shard: int) -> None:
        servers.crash(servers.servers[shard].party)

    def look(_: Simulation) -> bool:
        nonlocal seen, left
        number = recovery.number if recovery.under_way else -recovery.number
        if number == seen:
            return False
        seen = number
        if left and sim.now < calm_s and random.randrange(2):
            left -= 1
            shard = random.randrange(len(servers.servers))
            at = sim.now + random.random() * random.choice(AFTER_S)
            sim.heap.push(at, ends, shard)
        return False

    return look
