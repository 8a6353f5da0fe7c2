"""Keeps the evaluations of a run, as many as a curve can show.

A long run makes thousands. Of each bin of time the last evaluation is kept, and all bins are equally wide, so the
curve is as fine at its beginning as at its end. When there are too many points the bins become wider.
"""

from __future__ import annotations

from paceline.core.trace import Evaluated

POINTS_MAX = 400
"""Evaluations that are kept; of more the curve would not show the difference."""


class Evaluations:
    """Keeps at most POINTS_MAX of the evaluations added, in the order of their times; `count` is how many there
    were."""

    def __init__(self) -> None:
        self.points: list[Evaluated] = []
        self.count = 0
        self._bin_s = 0.0  # 0: all are kept

    def add(self, record: Evaluated) -> None:
        """Adds an evaluation; those of several parties may come in any order."""
        self.count += 1
        at = len(self.points)
        while at and self.points[at - 1].at > record.at:
            at -= 1
        if at and at < len(self.points) and self._bin(self.points[at]) == self._bin(record):
            return  # a later one of the same bin is there
        self.points.insert(at, record)
        if at > 1 and self._bin(self.points[at - 1]) == self._bin(record):
            del self.points[at - 1]
        if len(self.points) > POINTS_MAX:
            self._thin()

    def _thin(self) -> None:
        """Keeps the first evaluation, and the last of each bin."""
        first, *others = self.points
        self._bin_s = max(2 * self._bin_s, 2 * (others[-1].at - first.at) / POINTS_MAX)
        kept = {self._bin(record): record for record in others}
        self.points = [first, *kept.values()]

    def _bin(self, record: Evaluated) -> float:
        """Returns the bin of an evaluation; while all are kept, its time."""
        return record.at // self._bin_s if self._bin_s else record.at
