"""Holds results of measurements: the seconds reached, the seconds of the limit, and the conditions."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FLOAT_BYTES = 4

Note = Callable[[str], None]
"""Is called with a line about what is being measured now."""


def say_nothing(_text: str) -> None:
    """Ignores what is being measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Holds one measurement and its limit, the medians of all rounds in seconds.

    limit       what bounds it, in words
    nbytes      of the vector that is moved; 0 if none
    conditions  what else was chosen, by name: transport, workers, ...
    """

    what: str
    limit: str
    nbytes: int
    seconds_median: float
    seconds_limit: float
    conditions: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, what: str, limit: str, nbytes: int, reached: Sequence[float], bound: Sequence[float], **conditions: Any
    ) -> Figure:
        """Makes a figure from the seconds of single measurements, by their medians."""
        return cls(
            what=what,
            limit=limit,
            nbytes=nbytes,
            seconds_median=statistics.median(reached),
            seconds_limit=statistics.median(bound),
            conditions=conditions,
        )

    @property
    def ratio(self) -> float:
        """Returns how many times as long as the limit."""
        return self.seconds_median / self.seconds_limit

    def row(self) -> dict[str, Any]:
        """Returns the figure as a row for JSON."""
        return {
            "what": self.what,
            "limit": self.limit,
            "bytes": self.nbytes,
            "seconds_median": self.seconds_median,
            "seconds_limit": self.seconds_limit,
            "ratio": self.ratio,
            **self.conditions,
        }


def floats(mbytes: float) -> int:
    """Returns how many float32 numbers are so many millions of bytes; one at least."""
    return max(1, round(mbytes * 1e6 / FLOAT_BYTES))


def timed(act: Callable[[], object]) -> float:
    """Returns the seconds of one call."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began
