"""Chooses the carrier that `auto` takes for a mean, and says why."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.core.collective.cost_model import Cost, Path, cost_of, groups, of_servers

BY_PREFERENCE = ("pairwise", "blocks", "ring", "hierarchical", "butterfly")
"""Of equally fast schedules the first is taken: pieces that nobody passes on can be read the soonest."""

WORTH_IT = 0.95  # a carrier further down the list has to be at least that much better


@dataclass(frozen=True, slots=True)
class LinkCost:
    """Gives the cost of the slowest link that was measured. A `latency_s` of 0 means that none was measured."""

    latency_s: float = 0.0
    seconds_per_byte: float = 0.0


UNMEASURED = LinkCost(1e-4, 1e-9)


@dataclass(frozen=True, slots=True)
class Fabric:
    """Describes where the members of a mean are: the host of each, the links inside a host and
    across, and the servers.
    """

    homes: tuple[str, ...]
    within: LinkCost = LinkCost()
    across: LinkCost = LinkCost()
    servers: int = 0

    def link(self, a: int, b: int) -> LinkCost:
        """Returns the cost of the link between two workers, by whether they are on one host."""
        link = self.within if self.homes[a] == self.homes[b] else self.across
        return link if link.latency_s else UNMEASURED

    def path(self, a: int, b: int) -> Path:
        """Returns the way of bytes from member `a` to member `b`.

        Inside a host pairs of members share nothing; to another host all pairs share the network cards of both hosts.
        """
        link = self.link(a, b)
        if self.homes[a] == self.homes[b]:
            return Path(link.latency_s, ((("by", a), link.seconds_per_byte), (("to", b), link.seconds_per_byte)))
        out, into = ("out of", self.homes[a]), ("into", self.homes[b])
        return Path(link.latency_s, ((out, link.seconds_per_byte), (into, link.seconds_per_byte)))


@dataclass(frozen=True, slots=True)
class Choice:
    """`name` is the carrier; `reason` is one line with the seconds of all carriers, for the log and the trace."""

    name: str
    reason: str


def choose(fabric: Fabric, nbytes: int, *, gathered: bool = False) -> Choice:
    """Returns the carrier for a vector of `nbytes`, by what each would cost on the measured links.

    gathered: every member gets the vectors of all, as they are encoded, instead of their sum.
    """
    moved = len(fabric.homes) * nbytes if gathered else nbytes
    seconds = {name: cost.seconds(moved) for name, cost in _costs(fabric, gathered).items()}
    best = "servers" if fabric.servers else BY_PREFERENCE[0]
    for name in BY_PREFERENCE:
        if name in seconds and seconds[name] < WORTH_IT * seconds[best]:
            best = name
    return Choice(best, _reason(fabric, nbytes, best, seconds))


@functools.lru_cache(maxsize=64)
def _costs(fabric: Fabric, gathered: bool) -> dict[str, Cost]:
    """Returns the cost of each carrier that this cluster has a use for.

    A hierarchy needs several hosts, some of them with several workers; servers are as fast as the slowest link to them.
    """
    n, hosts = len(fabric.homes), groups(fabric.homes)
    names = [name for name in BY_PREFERENCE if name != "hierarchical" or 1 < len(hosts) < n]
    costs = {name: cost_of(name, n, fabric.path, hosts, gathered=gathered) for name in names}
    if fabric.servers:
        slowest = max((fabric.link(0, b) for b in range(1, n)), key=lambda link: link.seconds_per_byte)
        costs["servers"] = of_servers(n, fabric.servers, slowest.latency_s, slowest.seconds_per_byte)
    return costs


def _reason(fabric: Fabric, nbytes: int, best: str, seconds: dict[str, float]) -> str:
    """Returns the choice in words, with the seconds of all others."""
    n, hosts = len(fabric.homes), len(set(fabric.homes))
    where = "one host" if hosts == 1 else f"{hosts} hosts"
    others = ", ".join(f"{name} {_time(s)}" for name, s in sorted(seconds.items(), key=_by_seconds) if name != best)
    return f"{best}: {nbytes / 1e6:.3g} MB among {n} workers on {where} take {_time(seconds[best])} ({others})"


def _by_seconds(item: tuple[str, float]) -> float:
    return item[1]


def _time(seconds: float) -> str:
    """Returns seconds as milliseconds."""
    return f"{seconds * 1e3:.3g} ms"


def homes_of(among: Sequence[int], hosts: Sequence[str]) -> tuple[str, ...]:
    """Returns the host of each member; a member counts as alone on its host where `hosts` (by rank) does not say."""
    return tuple(hosts[rank] if rank < len(hosts) and hosts[rank] else f"#{rank}" for rank in among)
