"""Keeps sums over time, in bins of one width for all rows. The width follows the run, so that the memory does not.

    run of 3 s       240 bins of 1/64 s
    run of 60 s      240 bins of 1/4 s: when all bins were used, two became one, four times
    beyond span_s    the width stays, and the oldest bins make way for new ones

Bin number n begins at n * width_s and lies at place n modulo BINS, so that nothing is moved when the oldest goes.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator

BINS = 240
"""Bins of a row: about as many as a strip of the page has pixels to show."""
WIDTH_MIN_S = 1 / 64
"""Width of a bin at the beginning, in seconds; it doubles when the bins are full."""


class TimeBins:
    """Keeps `kinds` sums for each row and bin. `span_s`: what the bins shall span; infinite for the whole run."""

    def __init__(self, kinds: int, span_s: float = math.inf) -> None:
        self.kinds, self.span_s = kinds, span_s
        self.width_s = WIDTH_MIN_S
        self.first = self.last = 0  # numbers of the oldest and the newest bin; number n begins at n * width_s
        self._rows: list[array[float]] = []

    @property
    def rows(self) -> int:
        """Returns the number of rows."""
        return len(self._rows)

    def need(self, rows: int) -> None:
        """Makes sure that there are at least so many rows."""
        while len(self._rows) < rows:
            self._rows.append(array("f", bytes(4 * BINS * self.kinds)))

    def add(self, row: int, kind: int, begin_s: float, end_s: float, amount: float) -> None:
        """Adds `amount`, spread evenly from `begin_s` to `end_s`; what lies before the oldest bin is dropped."""
        width, kinds = self.width_s, self.kinds
        high = int(end_s / width)
        if high > self.last:
            self._reach(end_s)
            width = self.width_s
            high = int(end_s / width)
        if row >= len(self._rows):
            self.need(row + 1)
        sums, low = self._rows[row], int(max(begin_s, 0.0) / width)
        if high < self.first:
            return
        if low >= high or begin_s >= end_s:
            sums[high % BINS * kinds + kind] += amount
            return
        rate = amount / (end_s - begin_s)
        if low >= self.first:
            sums[low % BINS * kinds + kind] += rate * ((low + 1) * width - begin_s)
        sums[high % BINS * kinds + kind] += rate * (end_s - high * width)
        full = rate * width
        for number in range(max(low + 1, self.first), high):
            sums[number % BINS * kinds + kind] += full

    def cover(self, at_s: float) -> None:
        """Makes bins up to a time; those of which nothing is told are empty."""
        if int(at_s / self.width_s) > self.last:
            self._reach(at_s)

    def of(self, row: int) -> Iterator[tuple[float, ...]]:
        """Yields the sums of one row, the oldest bin first."""
        sums, kinds = self._rows[row], self.kinds
        for number in range(self.first, self.last + 1):
            at = number % BINS * kinds
            yield tuple(sums[at : at + kinds])

    def _reach(self, at_s: float) -> None:
        """Makes room for a time: wider bins until they span `span_s`, then new ones in place of the oldest."""
        while int(at_s / self.width_s) - self.first >= BINS and BINS * self.width_s < self.span_s:
            self._double()
        wanted = int(at_s / self.width_s)
        if wanted <= self.last:
            return
        for number in range(max(self.last + 1, wanted - BINS + 1), wanted + 1):
            self._clear(number)
        self.last, self.first = wanted, max(self.first, wanted - BINS + 1)

    def _clear(self, number: int) -> None:
        """Empties a bin of all rows, for a new stretch of time."""
        at, empty = number % BINS * self.kinds, array("f", bytes(4 * self.kinds))
        for sums in self._rows:
            sums[at : at + self.kinds] = empty

    def _double(self) -> None:
        """Joins two bins into one, in all rows."""
        first, last, kinds = self.first // 2, self.last // 2, self.kinds
        for row, old in enumerate(self._rows):
            new = array("f", bytes(4 * BINS * kinds))
            for number in range(self.first, self.last + 1):
                for kind in range(kinds):
                    new[number // 2 % BINS * kinds + kind] += old[number % BINS * kinds + kind]
            self._rows[row] = new
        self.first, self.last, self.width_s = first, last, 2 * self.width_s
