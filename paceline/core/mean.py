"""`Mean` carried by the servers: the aggregator is itself a role, in the same vocabulary as the schemes.

Every shard collects its slice from each member and answers all of them once the last one came: the rendezvous is
a set of replies not yet given.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
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


@dataclass(slots=True, eq=False)
class _Meeting:
    among: tuple[int, ...]
    tag: Hashable
    absent: set[int]
    sum: Any = None
    weight: float = 0.0
    present: dict[int, None] = field(default_factory=dict)  # in order of arrival
    result: Averaged | None = None

    def add(self, rank: int, part: Part) -> None:
        """A repeat, by a member that was restarted while it waited, changes nothing."""
        if rank in self.present:
            return
        weighted = part.v * part.weight
        self.sum = weighted if self.sum is None else self.sum + weighted
        self.weight += part.weight
        self.absent.discard(rank)
        self.present[rank] = None

    def is_of(self, part: Part) -> bool:
        # The identity test spares a comparison of all ranks wherever the members share one tuple.
        return self.tag == part.tag and (self.among is part.among or self.among == part.among)


def weighted_mean(total: Any, weight: float) -> Any:
    """total / weight; the zero vector `total` itself when nobody contributed anything."""
    return total * (1.0 / weight) if weight else total


def mean_model(models: Iterable[tuple[Any, float]]) -> Any:
    """The mean of (w, weight)s: the model of workers that each have their own. One that counts nothing is not read."""
    total, weight = None, 0.0
    for w, more in models:
        if more or total is None:
            total = w * more if total is None else total + w * more
            weight += more
    return weighted_mean(total, weight)


class MeanServer(Role):
    """Closes a meeting when every member that still takes part has come.

    Each member's last result is kept until its next one, for a member that was restarted before the answer
    reached it and asks again.
    """

    def __init__(self, scheme: Any, place: Place) -> None:
        super().__init__(scheme, place)
        self.meetings: dict[Hashable, list[_Meeting]] = {}  # those still open, by tag
        self.closed: dict[int, _Meeting] = {}  # the last one of each rank
        self.left: set[int] = set()

    def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
        match message:
            case Part():
                last = self.closed.get(src)
                if last is not None and last.is_of(message):
                    yield Reply(src, last.result)
                    return
                meeting = self._meeting(message)
                meeting.add(src, message)
                yield from self._close(meeting)
            case _:
                yield from super().on(now, src, message)

    def gone(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        self.left.add(rank)
        self.closed.pop(rank, None)
        for meeting in [meeting for same_tag in self.meetings.values() for meeting in same_tag]:
            meeting.absent.discard(rank)
            yield from self._close(meeting)

    def _meeting(self, part: Part) -> _Meeting:
        same_tag = self.meetings.setdefault(part.tag, [])
        for meeting in same_tag:
            if meeting.is_of(part):
                return meeting
        same_tag.append(_Meeting(part.among, part.tag, set(part.among) - self.left))
        return same_tag[-1]

    def _close(self, meeting: _Meeting) -> Iterator[Reply]:
        if meeting.absent:
            return
        same_tag = self.meetings[meeting.tag]
        same_tag.remove(meeting)
        if not same_tag:
            del self.meetings[meeting.tag]
        result = meeting.result = Averaged(v=weighted_mean(meeting.sum, meeting.weight), weight=meeting.weight)
        meeting.sum = None
        self.on_mean(meeting.tag, result)
        for rank in meeting.present:
            if rank not in self.left:
                self.closed[rank] = meeting
                yield Reply(rank, result)

    def on_mean(self, tag: Hashable, result: Averaged) -> None:
        """For drivers that want to know of a result, such as the initial weights."""
