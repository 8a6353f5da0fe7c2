"""Estimates every worker's speed: one smoothed number a worker, and who has the largest.

last      the last sample: quick to follow, one slow step misleads
ema:b     b of the last sample and 1 - b of what was known before
median:n  the median of the last n samples: n // 2 slow steps change nothing
"""

from __future__ import annotations

import heapq
import statistics
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

RULES = ("last", "ema", "median")


@dataclass(frozen=True, slots=True)
class Smoothing:
    """`rule` is one of RULES; `parameter` is b (0 < b <= 1) or n (at least 1). Raises ValueError otherwise."""

    rule: str = "last"
    parameter: float = 1.0

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"unknown smoothing {self.rule!r}; write last, ema:b or median:n")
        if self.rule == "ema" and not 0 < self.parameter <= 1:
            raise ValueError(f"b of ema:b must lie above 0 and not above 1, not {self.parameter:g}")
        if self.rule == "median" and not (self.parameter >= 1 and self.parameter == int(self.parameter)):
            raise ValueError(f"n of median:n must be a whole number from 1, not {self.parameter:g}")

    @classmethod
    def parse(cls, text: str) -> Smoothing:
        """Reads `"last"`, `"ema:0.3"` or `"median:5"`. Raises ValueError as the constructor does."""
        rule, _, parameter = text.partition(":")
        return cls(rule, float(parameter)) if parameter else cls(rule)


class Estimates:
    """Holds one number a rank, 0 while nothing is known. `unknown`: the ranks that have none yet."""

    def __init__(self, ranks: Iterable[int], smoothing: Smoothing | None = None) -> None:
        self.unknown = set(ranks)
        self._smoothing = smoothing or Smoothing()
        self._value: dict[int, float] = {}
        self._kept: dict[int, deque[float]] = {}  # the samples that a median is taken of

    def __getitem__(self, rank: int) -> float:
        return self._value.get(rank, 0.0)

    def together(self) -> float:
        """Returns the seconds of one step of all ranks together, if the numbers are each one's; 0 if there are none."""
        return 1 / sum(1 / seconds for seconds in self._value.values()) if self._value else 0.0

    def put(self, rank: int, sample: float) -> None:
        """Takes a new sample (seconds, or samples/s: the caller's choice) of `rank` into its estimate."""
        self.unknown.discard(rank)
        self._value[rank] = sample if self._smoothing.rule == "last" else self._smoothed(rank, sample)

    def _smoothed(self, rank: int, sample: float) -> float:
        """Returns the new estimate: the median of the latest samples, or an exponential mean."""
        parameter = self._smoothing.parameter
        if self._smoothing.rule == "median":
            kept = self._kept.setdefault(rank, deque(maxlen=int(parameter)))
            kept.append(sample)
            return statistics.median(kept)
        before = self._value.get(rank, sample)
        return before + parameter * (sample - before)

    def add(self, rank: int) -> None:
        """Begins with `rank`, a newcomer of whom nothing is known."""
        self.drop(rank)
        self.unknown.add(rank)

    def drop(self, rank: int) -> None:
        """Forgets a worker."""
        self.unknown.discard(rank)
        self._value.pop(rank, None)
        self._kept.pop(rank, None)


class Ranked(Estimates):
    """Also knows which rank has the largest number, in O(log ranks), by a heap with stale entries."""

    def __init__(self, ranks: Iterable[int], smoothing: Smoothing | None = None) -> None:
        super().__init__(ranks, smoothing)
        self._heap: list[tuple[float, int]] = []

    def put(self, rank: int, sample: float) -> None:
        """Also pushes the new estimate onto the heap; the entry of the old one stays and is stale."""
        before = self._value.get(rank)
        super().put(rank, sample)
        value = self._value[rank]
        if value == before:
            return
        heapq.heappush(self._heap, (-value, rank))
        # Stale entries are dropped when they reach the top; this rebuilds the heap before they fill the memory.
        if len(self._heap) > 8 * len(self._value) + 64:
            self._heap = [(-v, r) for r, v in self._value.items()]
            heapq.heapify(self._heap)

    def steps_meanwhile(self, rank: int, steps: int) -> int:
        """Returns how many steps `rank` makes while the fastest makes `steps`, where the numbers are speeds.

        It is at least 1, and `steps` while either speed is not known.
        """
        fastest = self.largest()
        if fastest is None or rank in self.unknown or not self[fastest]:
            return steps
        # The small number: equal speeds are equal, whatever their last digit says.
        return max(1, int(self[rank] / self[fastest] * steps + 1e-9))

    def largest(self) -> int | None:
        """Returns the rank with the largest number, the lowest such rank; None while nothing is known."""
        while self._heap and self._value.get(self._heap[0][1]) != -self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][1] if self._heap else None
