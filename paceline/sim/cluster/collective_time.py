"""Computes the time of a `Mean` among workers that they carry themselves, by the schedule of its carrier.

The messages of a schedule (ring, pairwise, hierarchical, ...) are not simulated one by one: `core/collective`
computes the cost of the whole, in which each round costs its largest latency and the time of its busiest card or
line. Traffic outside the collective does not delay it, and it delays nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core.collective import (
    Choice,
    Cost,
    Fabric,
    Groups,
    LinkCost,
    Path,
    Schedule,
    choose,
    cost_of,
    gathering_for,
    groups,
    schedule_for,
)
from paceline.sim.cluster.model import Cluster
from paceline.sim.cluster.network import Network, Nic

REMEMBERED_MAX = 256
"""Groups of ranks whose cost is kept; all are forgotten when there are more."""


class CollectiveTiming:
    """Computes times of means among the workers whose `cards` are given by rank, by the schedule `name`."""

    def __init__(self, network: Network, cards: Sequence[Nic], name: str) -> None:
        self._network, self._cards, self._name = network, cards, name
        self._costs: dict[tuple[int, bool], tuple[tuple[int, ...], Cost]] = {}

    def seconds(self, among: tuple[int, ...], nbytes: int, *, gathered: bool = False) -> float:
        """Returns the seconds from the moment when the last of the ranks `among` has come until all have the mean.

        `nbytes`: of one member's vector. `gathered`: each member receives the vectors of all others instead of their
        sum.
        """
        return self._cost(among, gathered).seconds(nbytes * (len(among) if gathered else 1))

    def moved(self, among: tuple[int, ...], rank: int, nbytes: int, *, gathered: bool = False) -> tuple[int, int]:
        """Returns the bytes that the worker of that rank sends and receives during one mean."""
        members = len(among)
        if gathered:
            sent, received = self._gathering(among).bytes_moved(among.index(rank), nbytes * members)
            return round(sent), round(received)
        # Both move 2 (n - 1) / n of the vector in and out of every member, so the schedule need not be built for it.
        if self._name in ("ring", "pairwise"):
            both = 2 * (members - 1) * nbytes // members
            return both, both
        schedule = schedule_for(self._name, members, self._hosts(among))
        sent, received = schedule.bytes_moved(among.index(rank), nbytes)
        return round(sent), round(received)

    def _gathering(self, among: tuple[int, ...]) -> Schedule:
        return gathering_for(self._name, len(among), self._hosts(among))

    def _cost(self, among: tuple[int, ...], gathered: bool) -> Cost:
        """Returns the cost of a mean, cached by the identity of `among`, which its members share: O(1) for each."""
        known = self._costs.get((id(among), gathered))
        if known and known[0] is among:
            return known[1]
        if len(self._costs) >= REMEMBERED_MAX:
            self._costs.clear()
        hosts = self._hosts(among)
        cost = cost_of(self._name, len(among), lambda a, b: self._path(among[a], among[b]), hosts, gathered=gathered)
        self._costs[id(among), gathered] = among, cost
        return cost

    def _path(self, a: int, b: int) -> Path:
        """Returns what a message from worker `a` to worker `b` passes: cards and lines, each with its seconds
        per byte."""
        return self._network.path(self._cards[a], self._cards[b], a, b)

    def _hosts(self, among: tuple[int, ...]) -> Groups:
        """Returns the ranks of `among` by host, which only the hierarchical schedule asks for."""
        return groups([id(self._cards[rank]) for rank in among]) if self._name == "hierarchical" else ()


def choice_for(cluster: Cluster, nbytes: int, *, gathered: bool = False) -> Choice:
    """Returns what `--allreduce auto` takes on such a cluster for vectors of `nbytes`; `gathered`: as of `choose`.

    The slowest card and the largest latency count, because a collective waits for its slowest member.
    """
    placements, network = cluster.worker_placements(), cluster.network
    if len(placements) == 1:
        return Choice("servers" if cluster.servers else "ring", "")
    slowest_gbps = min(placement.host.bandwidth_gbps or network.bandwidth_gbps for placement in placements)
    latency_s = network.latency_s + 2 * max(placement.host.latency_s for placement in placements)
    within = LinkCost(network.local_latency_s, 8e-9 / network.local_bandwidth_gbps)
    if cluster.messages is not None:  # both ends work for each message, as they do where links are measured
        costs = cluster.messages
        within = LinkCost(within.latency_s + 2 * costs.worker_s, within.seconds_per_byte + 2e-6 * costs.worker_s_per_mb)
    homes = tuple(placement.host_name for placement in placements)
    return choose(
        Fabric(homes, within, LinkCost(latency_s, 8e-9 / slowest_gbps), cluster.servers), nbytes, gathered=gathered
    )
