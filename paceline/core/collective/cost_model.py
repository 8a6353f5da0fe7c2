"""Computes what a schedule costs on given links: the seconds of latency, and the seconds for each byte.

The model is the usual one (Hockney 1994, as in Thakur, Rabenseifner and Gropp 2005): a step takes the latency of its
slowest transfer, plus as long as the busiest link needs for the bytes that pass through it. So two members of a host
that send at once share its card.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from paceline.core.collective.algorithms import Groups, ring_steps, schedule_for
from paceline.core.collective.allgather import gathering_for
from paceline.core.collective.schedule import Step


@dataclass(frozen=True, slots=True)
class Path:
    """Leads from one member to another: seconds of latency, and what the bytes pass through, by
    name, with seconds a byte.
    """

    latency_s: float
    through: tuple[tuple[Hashable, float], ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """Holds the cost of a mean: N bytes take latency_s + N seconds_per_byte."""

    latency_s: float
    seconds_per_byte: float

    def seconds(self, nbytes: float) -> float:
        """Returns the seconds that a vector of `nbytes` takes."""
        return self.latency_s + nbytes * self.seconds_per_byte


def cost_of(name: str, n: int, path: Callable[[int, int], Path], hosts: Groups = (), *, gathered: bool = False) -> Cost:
    """Returns the cost of the schedule of that name among n members; `path(a, b)` says how a's messages get to b.

    gathered: the cost of the gathering along it; its bytes are those of all members' vectors together.
    """
    latency_s = per_byte = 0.0
    for repeats, pieces, step in _rounds(name, n, hosts, gathered):
        busy: dict[Hashable, float] = defaultdict(float)
        slowest = 0.0
        for t in step:
            way = path(t.src, t.dst)
            slowest = max(slowest, way.latency_s)
            for what, seconds_per_byte in way.through:
                busy[what] += (t.stop - t.first) / pieces * seconds_per_byte
        latency_s += repeats * slowest
        per_byte += repeats * max(busy.values(), default=0.0)
    return Cost(latency_s, per_byte)


def _rounds(name: str, n: int, hosts: Groups, gathered: bool) -> Iterator[tuple[int, int, Step]]:
    """Yields steps, how often each comes, and the pieces of the vector.

    All steps of a ring cost the same, so one stands for all: a ring of thousands has millions of transfers.
    """
    if name == "ring":
        yield from (((2 - gathered) * (n - 1), n, step) for step in ring_steps(n, 1))
        return
    schedule = gathering_for(name, n, hosts) if gathered else schedule_for(name, n, hosts)
    yield from ((1, schedule.pieces, step) for step in schedule.steps)


def of_servers(n: int, servers: int, latency_s: float, seconds_per_byte: float) -> Cost:
    """Returns the cost through `servers` servers, each of which takes in and gives out its shard
    once for every member.
    """
    return Cost(2 * latency_s, 2 * max(1.0, n / servers) * seconds_per_byte)


def groups(homes: Sequence[Hashable]) -> Groups:
    """Returns the members by home, those with the same one together, in order."""
    members: dict[Hashable, list[int]] = {}
    for member, home in enumerate(homes):
        members.setdefault(home, []).append(member)
    return tuple(map(tuple, members.values()))
