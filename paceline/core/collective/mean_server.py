"""`Mean` carried by the servers: the aggregator is itself a role, in the same vocabulary as the schemes.

Every shard collects its slice from each member and answers all of them once the last one came: the rendezvous is
a set of replies not yet given.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from paceline.core.effects import Mean, Reply, Tell
from paceline.core.errors import Diverged
from paceline.core.message import INCREMENT, Nature, message
from paceline.core.role import Role, RoleContext
from paceline.core.validation import bounds
from paceline.core.vector import Vector


@message("mean.Part")
class Part:
    """One member's contribution to a mean."""

    carries: ClassVar[Nature] = INCREMENT

    v: Vector
    among: bounds.Ranks
    tag: bounds.Name
    weight: bounds.Weight
    series: bounds.Integer = 0

    @classmethod
    def of(cls, mean: Mean) -> Part:
        return cls(v=mean.v, among=mean.among, tag=str(mean.tag), weight=mean.weight, series=mean.series)


@message("mean.Averaged")
class Averaged:
    """Result of `Mean`: `v` = sum(weight_i v_i) / weight, `weight` = sum(weight_i)."""

    carries: ClassVar[Nature] = INCREMENT

    v: Vector
    weight: bounds.MeanWeight
    series: bounds.Integer = 0


@dataclass(slots=True, eq=False)
class _Meeting:
    among: tuple[int, ...]
    tag: Hashable
    absent: set[int]
    series: int = 0
    sum: Any = None
    weight: float = 0.0
    first: int | None = None  # whose part is all of the sum so far
    counted: set[int] = field(default_factory=set)
    refused: bool = False  # was anything that has a weight?
    present: dict[int, None] = field(default_factory=dict)  # who waits for the result, in order of arrival
    result: Averaged | None = None

    def add(self, rank: int, part: Part, fault: Callable[[int, Part, Any], str | None]) -> None:
        """A repeat, by a member that was restarted or came back while the meeting was open, changes nothing.

        Nor does one with a `fault`; its member is not waited for any longer.
        """
        self.present[rank] = None
        if rank in self.counted:
            return
        self.absent.discard(rank)
        self.counted.add(rank)
        if fault(rank, part, self.sum) is not None:
            self.refused = True
            return
        weighted = part.v * part.weight
        if self.sum is None:
            self.sum, self.first = weighted, rank
        elif self.first is not None:
            self.sum, self.first = sum_of_two(self.first, self.sum, rank, weighted), None
        else:
            self.sum = self.sum + weighted
        self.weight += part.weight

    def is_of(self, part: Part) -> bool:
        # The identity test spares a comparison of all ranks wherever the members share one tuple.
        if self.tag != part.tag or self.series != part.series:
            return False
        return self.among is part.among or self.among == part.among

    def excuse(self, rank: int) -> None:
        """It will not come: it waits for the result, and is not counted."""
        self.absent.discard(rank)
        self.counted.add(rank)
        self.present[rank] = None


def sum_of_two(first: int, a: Any, second: int, b: Any) -> Any:
    """a + b, of ranks `first` and `second`: the same bits whichever of the two came first."""
    return a + b if first < second else b + a


def weighted_mean(total: Any, weight: float) -> Any:
    """total / weight; the zero vector `total` itself when nobody contributed anything."""
    return total * (1.0 / weight) if weight else total


def mean_model(models: Iterable[tuple[Any, float]]) -> Any:
    """The mean of (w, weight)s: the model of workers that each have their own; the first w where nobody counts."""
    first, total, weight = None, None, 0.0
    for w, more in models:
        first = w if first is None else first
        if more:
            total = w * more if total is None else total + w * more
            weight += more
    return first if total is None else weighted_mean(total, weight)


class MeanServer(Role):
    """Closes a meeting when every member that still takes part has come.

    Of each member as many results are kept as it may have Means under way (`Scheme.means_at_once`), for one that was
    restarted before the answers reached it and asks again. A member that comes late may still ask for a meeting that
    closed without it: it gets the result and is not counted. Meetings that begin after it came expect it.

    All members go to the same meetings, and have no more of them open than `means_at_once`. So there is always one that
    may still ask for a meeting: the one that the others wait for. If there is none, somebody has asked for a meeting
    that is none, and everybody would wait for ever. Then the meeting that most have come to is the one, and those who
    are not in it get its result instead of what they asked for, and are not counted. Where as many have come to another
    one, those decide who have been outvoted less often before.
    """

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        super().__init__(scheme, place)
        self.meetings: dict[Hashable, list[_Meeting]] = {}  # those still open, by tag
        self.kept_at_most: int = getattr(scheme, "means_at_once", 1)
        self.closed: dict[int, list[_Meeting]] = {}  # the last ones of each rank, oldest first
        self.left: set[int] = set()
        self.asked: dict[int, list[_Meeting]] = {}  # by rank: not answered yet, in the order of the questions
        self.missed: dict[int, list[_Meeting]] = {}  # by newcomer: closed without it, oldest first
        self.outvoted: Counter[int] = Counter()  # by rank: how often it asked for another meeting than most

    def on(self, now: float, src: int, message: Any) -> Iterable[Tell | Reply]:
        if not isinstance(message, Part):
            return super().on(now, src, message)
        last = self._closed_before(src, message)
        if last is not None:
            self.asked.pop(src, None)  # what an earlier incarnation asked for
            return (Reply(src, last.result),)
        meeting = self._meeting(message)
        asked = self.asked.get(src)
        if not asked or meeting in asked:  # likewise
            self.asked[src] = [meeting]
        else:
            if (
                len(asked) == self.kept_at_most
            ):  # no worker asks more at once: the oldest is of an earlier incarnation, too
                self._gives_up(src, asked.pop(0))
            asked.append(meeting)
        meeting.add(src, message, functools.partial(self._fault, now))
        return self._go_on_together() if meeting.absent else self._close(meeting)

    def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        self.left.add(rank)
        if self.gate is not None:
            self.gate.gone(rank)
        self.closed.pop(rank, None)
        self.missed.pop(rank, None)
        self.asked.pop(rank, None)
        for meeting in self._open():
            meeting.absent.discard(rank)
            meeting.present.pop(rank, None)
            yield from self._close(meeting)
        self._forget_the_abandoned()
        yield from self._go_on_together()

    def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        self.left.discard(rank)
        if self.gate is not None:
            self.gate.came(rank)
        # Whom it takes its round over from may itself be a newcomer that lags behind.
        known = itertools.chain(*self.missed.values(), *self.closed.values())
        self.missed[rank] = list({id(meeting): meeting for meeting in known}.values())
        self._forget_the_abandoned()
        yield from ()

    def _open(self) -> list[_Meeting]:
        return [meeting for same_tag in self.meetings.values() for meeting in same_tag]

    def _forget_the_abandoned(self) -> None:
        """Newcomers who found nobody to follow begin anew, with the tags of the beginning."""
        if all(rank in self.left or rank in self.missed for rank in self.workers):
            for meeting in self._open():
                if not meeting.present:
                    self._remove(meeting)

    def _fault(self, now: float, rank: int, part: Part, onto: Any) -> str | None:
        """Why the gate lets it count nothing. One without a weight counts nothing in any case."""
        return self.gate.part(now, rank, part.v, onto) if self.gate is not None and part.weight else None

    def _closed_before(self, src: int, part: Part) -> _Meeting | None:
        """The meeting that `part` is of, if it is over."""
        for meeting in self.closed.get(src, ()):
            if meeting.is_of(part):
                return meeting
        found = next((meeting for meeting in self.missed.get(src, ()) if meeting.is_of(part)), None)
        if found is None:
            self.missed.pop(src, None)  # it has caught up
        return found

    def _meeting(self, part: Part) -> _Meeting:
        same_tag = self.meetings.setdefault(part.tag, [])
        for meeting in same_tag:
            if meeting.is_of(part):
                return meeting
        same_tag.append(_Meeting(part.among, part.tag, set(part.among) - self.left, part.series))
        return same_tag[-1]

    def _close(self, meeting: _Meeting) -> Iterator[Reply]:
        if meeting.absent:
            return
        nothing = meeting.sum is None or (meeting.refused and not meeting.weight)
        if nothing and meeting.present:
            raise Diverged(f"the model has diverged: nobody's part of the mean {meeting.tag} is finite; lower --lr")
        self._remove(meeting)
        mean = weighted_mean(meeting.sum, meeting.weight)
        result = meeting.result = Averaged(v=mean, weight=meeting.weight, series=meeting.series)
        meeting.sum = None
        self.on_mean(meeting.tag, result)
        for rank, missed in self.missed.items():
            if rank not in meeting.present:
                missed.append(meeting)
        for rank in meeting.present:
            closed = self.closed.setdefault(rank, [])
            if len(closed) == self.kept_at_most:
                del closed[0]
            closed.append(meeting)
            yield from self._answer(rank)

    def _go_on_together(self) -> Iterable[Reply]:
        """What to answer where everybody waits, and nobody for anybody who could still come; see the class."""
        several = len(self.meetings) > 1 or any(len(same_tag) > 1 for same_tag in self.meetings.values())
        here = (rank for rank in self.workers if rank not in self.left)
        if not several or any(len(self.asked.get(rank, ())) < self.kept_at_most for rank in here):
            return ()
        agreed = max(self._open(), key=self._votes)
        for rank in tuple(agreed.absent):
            self.outvoted[rank] += 1
            asked = self.asked[rank]
            self._gives_up(rank, asked[0])
            asked[0] = agreed
            agreed.excuse(rank)
        return self._close(agreed)

    def _votes(self, meeting: _Meeting) -> tuple[int, int]:
        return len(meeting.present), -sum(self.outvoted[rank] for rank in meeting.present)

    def _gives_up(self, rank: int, meeting: _Meeting) -> None:
        """It does not wait for that one any longer."""
        meeting.present.pop(rank, None)
        if not meeting.present and meeting.result is None:
            self._remove(meeting)

    def _remove(self, meeting: _Meeting) -> None:
        same_tag = self.meetings[meeting.tag]
        same_tag.remove(meeting)
        if not same_tag:
            del self.meetings[meeting.tag]

    def _answer(self, rank: int) -> Iterator[Reply]:
        """A reply belongs to the oldest question, so one that is ready early waits for those before it."""
        asked = self.asked[rank]
        while asked and asked[0].result is not None:
            yield Reply(rank, asked.pop(0).result)

    def forget(self, tag: Hashable) -> None:
        """Nobody will ask again for what was averaged under `tag`: its results need no room any more."""
        for known in (self.closed, self.missed):
            for meetings in known.values():
                meetings[:] = [meeting for meeting in meetings if meeting.tag != tag]

    def on_mean(self, tag: Hashable, result: Averaged) -> None:
        """For drivers that want to know of a result, such as the initial weights."""
