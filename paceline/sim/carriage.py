"""What a `Mean` among workers takes when they carry it themselves, by the schedule of its carrier."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core.collective import Choice, Cost, Fabric, Groups, Link, Path, choose, cost_of, groups, schedule_for
from paceline.sim.cluster import Cluster
from paceline.sim.network import Card, Network

REMEMBERED_MAX = 256


class Carriage:
    """Means among the workers whose `cards` are given by rank, by the schedule `name`."""

    def __init__(self, network: Network, cards: Sequence[Card], name: str) -> None:
        self._network, self._cards, self._name = network, cards, name
        self._costs: dict[int, tuple[tuple[int, ...], Cost]] = {}

    def seconds(self, among: tuple[int, ...], nbytes: int) -> float:
        """From the moment when the last of the ranks `among` has come."""
        return self._cost(among).seconds(nbytes)

    def moved(self, among: tuple[int, ...], rank: int, nbytes: int) -> tuple[int, int]:
        """Bytes that the worker of that rank sends and receives."""
        members = len(among)
        if self._name in ("ring", "pairwise"):
            both = 2 * (members - 1) * nbytes // members
            return both, both
        schedule = schedule_for(self._name, members, self._hosts(among))
        sent, received = schedule.bytes_moved(among.index(rank), nbytes)
        return round(sent), round(received)

    def _cost(self, among: tuple[int, ...]) -> Cost:
        """Remembered by the identity of `among`, which members share, so that a mean costs each of them O(1)."""
        known = self._costs.get(id(among))
        if known and known[0] is among:
            return known[1]
        if len(self._costs) >= REMEMBERED_MAX:
            self._costs.clear()
        cost = cost_of(self._name, len(among), lambda a, b: self._path(among[a], among[b]), self._hosts(among))
        self._costs[id(among)] = among, cost
        return cost

    def _path(self, a: int, b: int) -> Path:
        return self._network.path(self._cards[a], self._cards[b], a, b)

    def _hosts(self, among: tuple[int, ...]) -> Groups:
        return groups([id(self._cards[rank]) for rank in among]) if self._name == "hierarchical" else ()


def choice_for(cluster: Cluster, nbytes: int) -> Choice:
    """What `--mean auto` takes on such a cluster for vectors of `nbytes`."""
    seats, network = cluster.worker_seats(), cluster.network
    if len(seats) == 1:
        return Choice("servers" if cluster.servers else "ring", "")
    slowest_gbps = min(seat.host.bandwidth_gbps or network.bandwidth_gbps for seat in seats)
    latency_s = network.latency_s + 2 * max(seat.host.latency_s for seat in seats)
    within = Link(network.local_latency_s, 8e-9 / network.local_bandwidth_gbps)
    homes = tuple(seat.host_name for seat in seats)
    return choose(Fabric(homes, within, Link(latency_s, 8e-9 / slowest_gbps), cluster.servers), nbytes)
