"""`Mean` carried by the servers: the aggregator is itself a role, in the same vocabulary as the schemes.

Every shard collects its slice from each member and answers all of them once the last one came: the rendezvous is
a set of replies not yet given.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from paceline.core.effects import Reply, Tell
from paceline.core.message import message
from paceline.core.role import Place, Role
from paceline.core.vector import Vector


@message
class Part:
    """One member's contribution to a mean."""

    v: Vector
    among: tuple[int, ...]
    tag: str
    weight: float


@message
class Averaged:
    """Result of `Mean`: `v` = sum(weight_i v_i) / weight, `weight` = sum(weight_i)."""

    v: Vector
    weight: float


@dataclass(slots=True)
class _Meeting:
    absent: set[int]
    sum: Any = None
    weight: float = 0.0
    present: list[int] = field(default_factory=list)

    def add(self, rank: int, part: Part) -> None:
        weighted = part.v * part.weight
        self.sum = weighted if self.sum is None else self.sum + weighted
        self.weight += part.weight
        self.absent.discard(rank)
        self.present.append(rank)


def weighted_mean(total: Any, weight: float) -> Any:
    """total / weight; the zero vector `total` itself when nobody contributed anything."""
    return total * (1.0 / weight) if weight else total


class MeanServer(Role):
    """Closes a meeting when every member that still takes part has come."""

    def __init__(self, scheme: Any, place: Place) -> None:
        super().__init__(scheme, place)
        self.meetings: dict[tuple[tuple[int, ...], Hashable], _Meeting] = {}
        self.left: set[int] = set()

    def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
        match message:
            case Part(among=among, tag=tag):
                meeting = self.meetings.setdefault((among, tag), _Meeting(set(among) - self.left))
                meeting.add(src, message)
                yield from self._close((among, tag))
            case _:
                yield from super().on(now, src, message)

    def gone(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        self.left.add(rank)
        for key, meeting in list(self.meetings.items()):
            meeting.absent.discard(rank)
            yield from self._close(key)

    def _close(self, key: tuple[tuple[int, ...], Hashable]) -> Iterator[Reply]:
        meeting = self.meetings[key]
        if meeting.absent:
            return
        del self.meetings[key]
        result = Averaged(v=weighted_mean(meeting.sum, meeting.weight), weight=meeting.weight)
        self.on_mean(key[1], result)
        for rank in meeting.present:
            if rank not in self.left:
                yield Reply(rank, result)

    def on_mean(self, tag: Hashable, result: Averaged) -> None:
        """For drivers that want to know of a result, such as the initial weights."""
