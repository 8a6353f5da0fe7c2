"""Judges a run with faults: pauses in the trace, a table by kind of fault, and whether the bounds held."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paceline.chaos.plan import KINDS
from paceline.chaos.runner import FaultOutcome
from paceline.core.trace import Applied, Ended, Record, Span
from paceline.observe.formatting.columns import columns

Pause = tuple[float, float]  # from, to
HEADINGS = ("fault", "times", "declared failed", "back", "back p50", "back max", "pause p50", "pause max")
"""Columns of the table: of the times until a party was back, and of pauses, the median and the maximum."""


def pauses(records: Iterable[Record]) -> list[Pause]:
    """Returns the pauses between two updates of one shard; without servers, between any two steps of the run.

    The last pause reaches to the end of training. Each is measured on one shard's clock, in seconds.
    """
    moments: dict[int, list[float]] = defaultdict(list)
    steps, end = [], None
    for record in records:
        match record:
            case Applied(at=at, shard=shard):
                moments[shard].append(at)
            case Span(at=at, steps=count) if count:
                steps.append(at)
            case Ended(at=at):
                end = at
    series = list(moments.values()) or [steps]
    found: list[Pause] = []
    for one in series:
        found += itertools.pairwise(sorted([*one, *([] if end is None else [max([end, *one])])]))
    return found


def longest(among: Iterable[Pause]) -> float:
    """Returns the length of the longest pause in seconds, 0.0 where there is none."""
    return max((end - begin for begin, end in among), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosVerdict:
    """Holds what a run with faults is judged by.

    accuracy, quiet  of the last model with the faults, and of a run without; None if unknown
    unasked          losses that no fault explains
    hang_s, points   bounds: seconds of a pause, and percentage points of accuracy lost
    """

    outcomes: Sequence[FaultOutcome]
    planned: int
    unasked: int
    pauses: Sequence[Pause]
    accuracy: float | None
    quiet: float | None
    hang_s: float
    points: float

    def table(self) -> str:
        """Returns a row for each kind of fault."""
        rows = [self._row(kind) for kind in KINDS if any(o.fault.kind == kind for o in self.outcomes)]
        return columns(HEADINGS, rows, last=">")

    def _row(self, kind: str) -> tuple[str, ...]:
        """Returns the row of one kind of fault, a text for each of HEADINGS."""
        mine = [o for o in self.outcomes if o.fault.kind == kind]
        lost = [o for o in mine if o.lost_s is not None]
        backs = [o.back_s - o.at_s for o in lost if o.back_s is not None]
        stood = [self._pause_around(o) for o in mine]
        return (
            *(kind, str(len(mine)), str(len(lost)), str(len(backs))),
            *(f"{f(backs):.2f} s" if backs else "-" for f in (statistics.median, max)),
            *(f"{f(stood):.2f} s" for f in (statistics.median, max)),
        )

    def _pause_around(self, outcome: FaultOutcome) -> float:
        """Returns the longest pause that overlaps the fault or the recovery; other faults may share in it."""
        end = max(filter(None, (outcome.at_s, outcome.ended_s, outcome.back_s)))
        return longest(pause for pause in self.pauses if pause[1] > outcome.at_s and pause[0] < end)

    def broken(self) -> list[str]:
        """Returns the bounds that were broken, a line each."""
        found = []
        if len(self.outcomes) < self.planned:
            found.append(f"the run ended before {self.planned - len(self.outcomes)} of {self.planned} faults")
        if (pause := longest(self.pauses)) > self.hang_s:
            found.append(f"it stood still for {pause:.1f} s (bound {self.hang_s:g} s)")
        if self.accuracy is not None and self.quiet is not None and self.quiet - self.accuracy > self.points / 100:
            found.append(f"accuracy {self.accuracy:.3f}, quiet {self.quiet:.3f} (bound {self.points:g} points)")
        return found

    def __str__(self) -> str:
        """Returns the verdict in two lines: the figures, then whether the run came through."""
        hangs = sum(end - begin > self.hang_s for begin, end in self.pauses)
        known = "" if self.accuracy is None else f"; accuracy {self.accuracy:.3f}"
        known += "" if self.quiet is None else f", without faults {self.quiet:.3f}"
        broken = self.broken()
        return (
            f"{len(self.outcomes)} of {self.planned} faults; longest pause of all {longest(self.pauses):.2f} s; "
            f"{hangs} over {self.hang_s:g} s; lost without a fault: {self.unasked}{known}\n"
            + ("the run came through" if not broken else "NOT as it should be: " + "; ".join(broken))
        )
