"""Recounts means at each of their carriers: who contributed how much, and what the members were given.

A mean is found by its tag, its members and its series, which says of which part of the model it is. The carrier may
close it when every member that is present has contributed; the weight of the result must be the sum of their weights,
each counted once. A carrier that checks parts leaves out those that are not finite. All members must get the same
result object, so that no worker goes on with another model than the others, and it must be of that series.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Set
from typing import Any

from paceline.core.collective.mean_server import Averaged, Part
from paceline.core.vector import is_finite

TOLERANCE = 1e-9
"""Relative: weights are added in another order here than there."""


class _Count:
    """Parts that were heard for one mean. `weights`: the first that each member brought, until it `is_over`.

    missing: members that it does not close without; None before the first Part, when those who are here are counted.
    """

    def __init__(self) -> None:
        self.weights: dict[int, float] = {}
        self.missing: set[int] | None = None

    def add(self, rank: int, weight: float, among: tuple[int, ...], here: set[int]) -> None:
        """Counts a member's part, unless this mean is over; a part that comes again does not count twice."""
        if not self.is_over:
            self.missing = here.intersection(among) if self.missing is None else self.missing
            self.missing.discard(rank)
            self.weights.setdefault(rank, weight)

    def gone(self, rank: int) -> None:
        """Notes that a member is gone, without whom the mean may close from now on."""
        if self.missing is not None:
            self.missing.discard(rank)

    @property
    def is_over(self) -> bool:
        """Returns True if every present member has contributed."""
        return self.missing is not None and not self.missing

    def weighs(self, weight: float, liars: Set[int]) -> bool:
        """Returns True if `weight` fits these parts; what liars claim may count in full, in part or not at all."""
        honest = sum(own for rank, own in self.weights.items() if rank not in liars)
        lied = len(self.weights) > sum(rank not in liars for rank in self.weights)
        return math.isclose(weight, honest, rel_tol=TOLERANCE) or (lied and weight > honest * (1 - TOLERANCE))

    def awaits(self, liars: Set[int]) -> set[int]:
        """Returns the members without whom the mean must not close."""
        return (self.missing or set()).difference(liars)


class _ExpectedMean:
    """Counts the parts of one mean. `present`: the members that wait for the result.

    counts: usually one. When nobody waits any more, a second count begins, of the parts that arrive from then on: the
    carrier drops what it has if its members start anew, which the oracle cannot see, so either count may be right.
    """

    def __init__(self, part: Part) -> None:
        self.tag, self.among, self.series = part.tag, part.among, part.series
        self.counts = [_Count()]
        self.present: set[int] = set()
        self.result: Averaged | None = None

    @property
    def brought(self) -> float:
        """Returns the sum of the weights of the first count, for error texts."""
        return sum(self.counts[0].weights.values())

    def add(self, rank: int, weight: float, here: set[int]) -> None:
        """Counts the part of worker `rank`. `here`: who is present, as far as the carrier knows."""
        self.present.add(rank)
        for count in self.counts:
            count.add(rank, weight, self.among, here)

    def gone(self, rank: int) -> None:
        """Notes that a worker is gone, and begins another count if nobody waits any more."""
        self.present.discard(rank)
        for count in self.counts:
            count.gone(rank)
        if not self.present:
            self.abandon()

    def abandon(self) -> None:
        """Begins another count: the carrier may have dropped what it had, or may not."""
        self.present.clear()
        if self.counts[-1].weights:
            self.counts.append(_Count())

    def fault(self, result: Averaged, liars: Set[int]) -> str | None:
        """Returns why that result is wrong, or None: each member's part must count exactly once.

        It is of the series that the members asked for, else a worker would take one fragment of the model for another.
        Where a liar contradicts the only honest member, nothing can be said.
        """
        if result.series != self.series:
            return f"the members of {self.tag} get a mean of series {result.series} instead of {self.series}"
        weight = result.weight
        if len(set(self.counts[0].weights) - liars) < 2 and liars & set(self.among):
            return None
        counts = [count for count in self.counts if count.weighs(weight, liars)]
        if any(count.is_over or (count.missing and not count.awaits(liars)) for count in counts):
            return None
        if not counts or not counts[0].missing:
            return f"a mean weighs {weight:g}; its members brought {self.brought:g}"
        return f"the mean {self.tag} closes without worker {min(counts[0].missing)}, which is here"


class MeanRecount:
    """Counts what one carrier of means heard and answered. `broken` makes the error of a violation.

    liars: workers that have begun to lie; the mean that their parts name may be any. checks: the carrier leaves out
    parts that are not finite.
    """

    def __init__(
        self,
        broken: Callable[[str], AssertionError],
        workers: int,
        at_once: int,
        liars: Set[int] = frozenset(),
        *,
        checks: bool = False,
    ) -> None:
        self._broken, self._liars, self._checks = broken, liars, checks
        self._meetings: dict[tuple[str, tuple[int, ...], int], _ExpectedMean] = {}
        self._here = set(range(workers))
        self._asked: dict[int, deque[_ExpectedMean]] = defaultdict(lambda: deque(maxlen=at_once))
        self._former: deque[Averaged] = deque(maxlen=64)

    def hear(self, src: int, message: Any) -> None:
        """Counts a `Part`; all other messages are ignored. Old means are forgotten, so that a long run stays small."""
        if not isinstance(message, Part):
            return
        key = message.tag, message.among, message.series
        meeting = self._meetings.get(key)
        if meeting is None:
            meeting = self._meetings[key] = _ExpectedMean(message)
        if meeting.result is None:
            counts = not self._checks or is_finite(message.v)
            meeting.add(src, message.weight if counts else 0.0, self._here)
        if meeting not in self._asked[src]:
            self._asked[src].append(meeting)
        if len(self._meetings) > 64 + 8 * len(message.among):
            del self._meetings[next(iter(self._meetings))]

    def came(self, rank: int) -> None:
        """Notes that the carrier knows that worker `rank` is present."""
        self._here.add(rank)

    def gone(self, rank: int) -> None:
        """Notes that the carrier knows that worker `rank` is gone."""
        self._here.discard(rank)
        for meeting in self._meetings.values():
            if meeting.result is None:
                meeting.gone(rank)
        if not self._here:  # whoever comes next begins anew, with the tags of the beginning
            self._meetings.clear()
            self._asked.clear()

    def begins_anew(self) -> None:
        """Notes that a newcomer found nobody, so that the tags of the beginning may come again.

        Results under those tags are kept for a while: the carrier may still answer an old call with one.
        """
        self._former.extend(meeting.result for meeting in self._meetings.values() if meeting.result is not None)
        self._meetings = {key: meeting for key, meeting in self._meetings.items() if meeting.result is None}
        for meeting in self._meetings.values():
            meeting.abandon()
        for asked in self._asked.values():
            still_open = [meeting for meeting in asked if meeting.result is None]
            asked.clear()
            asked.extend(still_open)

    def reply(self, to: int, message: Any) -> None:
        """Checks the result that worker `to` is given: it must fit one of the means it asked for, and be the same for
        all members."""
        asked = self._asked[to]
        if (
            not isinstance(message, Averaged)
            or to in self._liars
            or any(meeting.result is message for meeting in asked)
        ):
            return
        if any(former is message for former in self._former):
            return
        still_open = [meeting for meeting in asked if meeting.result is None]
        if asked and not still_open:
            raise self._broken(f"worker {to} gets another mean than the others of {asked[-1].tag}")
        faults = {meeting: meeting.fault(message, self._liars) for meeting in still_open}
        fitting = [meeting for meeting, fault in faults.items() if fault is None]
        if still_open and not fitting:
            raise self._broken(faults[still_open[-1]] or "")
        for meeting in fitting[:1]:
            meeting.result = message
