"""What a `Mean` among workers takes when they carry it themselves, by the schedule of its carrier."""

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


class CollectiveTiming:
    """Means among the workers whose `cards` are given by rank, by the schedule `name`."""

    def __init__(self, network: Network, cards: Sequence[Nic], name: str) -> None:
        self._network, self._cards, self._name = network, cards, name
        self._costs: dict[tuple[int, bool], tuple[tuple[int, ...], Cost]] = {}

    def seconds(self, among: tuple[int, ...], nbytes: int, *, gathered: bool = False) -> float:
        """From the moment when the last of the ranks `among` has come; `gathered`: each gets `nbytes` of all others."""
        return self._cost(among, gathered).seconds(nbytes * (len(among) if gathered else 1))

    def moved(self, among: tuple[int, ...], rank: int, nbytes: int, *, gathered: bool = False) -> tuple[int, int]:
        """Bytes that the worker of that rank sends and receives."""
        members = len(among)
        if gathered:
            sent, received = self._gathering(among).bytes_moved(among.index(rank), nbytes * members)
            return round(sent), round(received)
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
        return self._network.path(self._cards[a], self._cards[b], a, b)

    def _hosts(self, among: tuple[int, ...]) -> Groups:
        return groups([id(self._cards[rank]) for rank in among]) if self._name == "hierarchical" else ()


def choice_for(cluster: Cluster, nbytes: int, *, gathered: bool = False) -> Choice:
    """What `--allreduce auto` takes on such a cluster for vectors of `nbytes`; `gathered`: as of `choose`."""
    placements, network = cluster.worker_placements(), cluster.network
    if len(placements) == 1:
        return Choice("servers" if cluster.servers else "ring", "")
    slowest_gbps = min(placement.host.bandwidth_gbps or network.bandwidth_gbps for placement in placements)
    latency_s = network.latency_s + 2 * max(placement.host.latency_s for placement in placements)
    within = LinkCost(network.local_latency_s, 8e-9 / network.local_bandwidth_gbps)
    homes = tuple(placement.host_name for placement in placements)
    return choose(
        Fabric(homes, within, LinkCost(latency_s, 8e-9 / slowest_gbps), cluster.servers), nbytes, gathered=gathered
    )
