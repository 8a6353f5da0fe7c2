"""Decides which party of a run goes to which host. It has no side effects: hosts and two numbers become a Placement.

Workers fill the slots of the hosts in the order of the file. Where nobody wrote down slots and there are more
workers than hosts, they are dealt out again and again, as MXNet did. In a file of bare addresses ranks go to the
addresses in descending order: so MXNet numbered its workers, and its `groups` and `data_sharding` files rely on it.

Servers go to the hosts that are there for them, or else to all, fast ones first, one each before anybody gets two.

Example: hosts a (slots=2), b (slots=1, speed=4), 3 workers, 2 servers: workers 0 and 1 on a, 2 on b; server 0 on b,
1 on a.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.core.errors import ConfigError
from paceline.launch.remote.hostfile import HostEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Says where parties run: `workers[rank]` and `servers[shard]` are numbers of `hosts`.

    `slots[rank]` counts the workers of one host, from 0.
    """

    hosts: tuple[HostEntry, ...]
    workers: tuple[int, ...]
    slots: tuple[int, ...]
    servers: tuple[int, ...]

    def host_of(self, who: Party) -> int:
        """Returns the number of a worker's or server's host."""
        return (self.workers if who.kind == "worker" else self.servers)[who.index]

    def parties_of(self, host: int) -> list[Party]:
        """Returns the parties of a host, servers first."""
        servers = [party.server(s) for s, at in enumerate(self.servers) if at == host]
        return servers + [party.worker(rank) for rank, at in enumerate(self.workers) if at == host]

    def used(self) -> list[int]:
        """Returns the hosts with something to do."""
        return sorted({*self.workers, *self.servers})

    def device_of(self, rank: int) -> str:
        """Returns a GPU of the host's list, in turn; `auto` where it has none. Of a node all of them: cuda:0+1+2+3."""
        gpus = self.hosts[self.workers[rank]].gpus
        if self.hosts[self.workers[rank]].worker:
            return f"cuda:{'+'.join(map(str, gpus))}"
        return f"cuda:{gpus[self.slots[rank] % len(gpus)]}" if gpus else "auto"

    def ranks_of(self, rank: int) -> int:
        """Returns how many processes a worker has: one, or one for each GPU of a node."""
        host = self.hosts[self.workers[rank]]
        return len(host.gpus) if host.worker else 1

    def batch_limits(self) -> tuple[int, ...]:
        """Returns the largest batch of each worker, by rank; 0 where its host has none."""
        return tuple(self.hosts[host].batch for host in self.workers)

    def groups(self) -> str:
        """Returns ranks by group, as GSP takes them: `0,1;2,3`; "" where no host has a group."""
        names = [self.hosts[host].group or self.hosts[host].name for host in self.workers]
        if not any(self.hosts[host].group for host in self.workers):
            return ""
        rows = ([str(rank) for rank, name in enumerate(names) if name == group] for group in dict.fromkeys(names))
        return ";".join(",".join(row) for row in rows)


def place(hosts: tuple[HostEntry, ...], workers: int, servers: int) -> Placement:
    """Returns the placement of a run. Raises ConfigError where its parties do not fit."""
    at = _place_workers(hosts, workers)
    seen: Counter[int] = Counter()
    slots = []
    for host in at:
        slots.append(seen[host])
        seen[host] += 1
    return Placement(hosts=hosts, workers=at, slots=tuple(slots), servers=_place_servers(hosts, servers))


def _place_workers(hosts: tuple[HostEntry, ...], workers: int) -> tuple[int, ...]:
    """Returns the host of each worker: slots are filled in the order of the file.

    Without any slots workers are dealt out in turn. Raises ConfigError for more workers than slots.
    """
    order = [number for number, host in enumerate(hosts) if host.role != "server"]
    if not order:
        raise ConfigError("every host of the hosts file has role=server: where shall workers run?")
    filled = [number for number in order for _ in range(hosts[number].slots or 1)]
    if workers > len(filled) and any(hosts[number].slots for number in order):
        raise ConfigError(
            f"{workers} workers and {len(filled)} slots in the hosts file: give -n {len(filled)}, or more slots="
        )
    if workers > len(filled):
        filled = sorted(itertools.islice(itertools.cycle(order), workers))
    if all(host.bare for host in hosts):
        filled = filled[:workers]
        filled.sort(key=lambda number: hosts[number].name, reverse=True)
    return tuple(filled[:workers])


def _place_servers(hosts: tuple[HostEntry, ...], servers: int) -> tuple[int, ...]:
    """Returns the host of each server: hosts for servers alone if there are some, the fastest first.

    Raises ConfigError where every host is for workers alone.
    """
    own = [number for number, host in enumerate(hosts) if host.role == "server"]
    able = own or [number for number, host in enumerate(hosts) if host.role != "worker"]
    if servers and not able:
        raise ConfigError("every host of the hosts file has role=worker: where shall servers run?")
    fast_first = sorted(able, key=lambda number: -hosts[number].speed)
    return tuple(itertools.islice(itertools.cycle(fast_first), servers)) if servers else ()
