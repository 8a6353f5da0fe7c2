"""Means, counted once more at each of their carriers: who contributed how much, and what the members were given."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

from paceline.core.mean import Averaged, Part

TOLERANCE = 1e-9
"""Relative: weights are added in another order here than there."""


class _Meeting:
    """The Parts of one mean. `awaited`: members that it may not close without. `present`: who waits for the result.

    counted: the first weight that each member brought; several tables once nobody waits any more, since its carrier
    then forgets what there was if whoever is there begins anew, which is not seen here.
    """

    def __init__(self, part: Part, here: Iterable[int]) -> None:
        self.tag = part.tag
        self.counted: list[dict[int, float]] = [{}]
        self.awaited = set(part.among).intersection(here)
        self.present: set[int] = set()
        self.result: Averaged | None = None

    @property
    def brought(self) -> float:
        return sum(self.counted[0].values())

    def add(self, rank: int, weight: float) -> None:
        self.present.add(rank)
        for weights in self.counted:
            weights.setdefault(rank, weight)

    def gone(self, rank: int) -> None:
        self.awaited.discard(rank)
        self.present.discard(rank)
        if not self.present:
            self.abandon()

    def abandon(self) -> None:
        self.present.clear()
        self.counted = [*filter(None, self.counted), {}]

    def missing(self) -> list[int]:
        """Who is here and was not waited for, whatever was forgotten."""
        return sorted(self.awaited.difference(self.counted[0]))

    def may_weigh(self, weight: float) -> bool:
        """Is that what its members brought, all of them and each once?"""
        return any(math.isclose(weight, sum(weights.values()), rel_tol=TOLERANCE) for weights in self.counted)


class Carrier:
    """What one carrier of means heard and answered. `broken` makes the error for what must not be."""

    def __init__(self, broken: Callable[[str], AssertionError], workers: int, at_once: int) -> None:
        self._broken = broken
        self._meetings: dict[tuple[str, tuple[int, ...]], _Meeting] = {}
        self._here = set(range(workers))
        self._asked: dict[int, deque[_Meeting]] = defaultdict(lambda: deque(maxlen=at_once))
        self._former: deque[Averaged] = deque(maxlen=64)

    def hear(self, src: int, message: Any) -> None:
        if not isinstance(message, Part):
            return
        key = message.tag, message.among
        meeting = self._meetings.get(key)
        if meeting is None:
            meeting = self._meetings[key] = _Meeting(message, self._here)
        if meeting.result is None:
            meeting.add(src, message.weight)
        if meeting not in self._asked[src]:
            self._asked[src].append(meeting)
        if len(self._meetings) > 64 + 8 * len(message.among):
            del self._meetings[next(iter(self._meetings))]

    def came(self, rank: int) -> None:
        self._here.add(rank)

    def gone(self, rank: int) -> None:
        self._here.discard(rank)
        for meeting in self._meetings.values():
            if meeting.result is None:
                meeting.gone(rank)
        if not self._here:  # whoever comes next begins anew, with the tags of the beginning
            self._meetings.clear()
            self._asked.clear()

    def begins_anew(self) -> None:
        """The tags of the beginning may come again; what was averaged under them may be answered again, too."""
        self._former.extend(meeting.result for meeting in self._meetings.values() if meeting.result is not None)
        self._meetings = {key: meeting for key, meeting in self._meetings.items() if meeting.result is None}
        for meeting in self._meetings.values():
            meeting.abandon()
        for asked in self._asked.values():
            still_open = [meeting for meeting in asked if meeting.result is None]
            asked.clear()
            asked.extend(still_open)

    def reply(self, to: int, message: Any) -> None:
        asked = self._asked[to]
        if not isinstance(message, Averaged) or any(meeting.result is message for meeting in asked):
            return
        if any(former is message for former in self._former):
            return
        still_open = [meeting for meeting in asked if meeting.result is None]
        if asked and not still_open:
            raise self._broken(f"worker {to} gets another mean than the others of {asked[-1].tag}")
        fitting = [meeting for meeting in still_open if meeting.may_weigh(message.weight)]
        if still_open and not fitting:
            brought = still_open[-1].brought
            raise self._broken(f"a mean weighs {message.weight:g}; its members brought {brought:g}")
        for meeting in fitting[:1]:
            self._closes(meeting, message)

    def _closes(self, meeting: _Meeting, result: Averaged) -> None:
        missing = meeting.missing()
        if missing:
            raise self._broken(f"the mean {meeting.tag} closes without worker {missing[0]}, which is here")
        meeting.result = result
