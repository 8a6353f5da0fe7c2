"""Gathers what the figures need of a run, in one pass over its trace."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from paceline.core.errors import PacelineError
from paceline.core.trace import Applied, Evaluated, Span
from paceline.observe.plots import style
from paceline.observe.runs.run_folders import Group, RunFolder
from paceline.observe.runs.summary import Summary

STEPS_SHOWN = 8
"""Steps of the slowest worker that a timeline shows."""


@dataclass(slots=True)
class Digest:
    """Holds what the figures need of one run.

    until        seconds that a timeline shows
    evaluations  by time
    exchanged    when each exchange ended, of all workers
    staleness    contributions to shard 0, by staleness
    begin        records of the first `until` seconds
    """

    run: RunFolder
    until: float
    evaluations: list[Evaluated] = field(default_factory=list)
    exchanged: list[float] = field(default_factory=list)
    staleness: Counter[int] = field(default_factory=Counter)
    begin: list[Span | Applied] = field(default_factory=list)

    @property
    def summary(self) -> Summary:
        """Returns the run's summary."""
        return self.run.summary

    def exchanges_by(self, at: float) -> float:
        """Returns how many exchanges a worker had made by then, in the mean over all."""
        return bisect.bisect_right(self.exchanged, at) / max(1, len(self.summary.workers))


@dataclass(frozen=True, slots=True)
class RunDigest:
    """Holds a group in the figures; `look`: the number of its colour, dashes and mark (`style.looks`)."""

    look: int
    group: Group
    digests: Sequence[Digest]

    @property
    def name(self) -> str:
        """Returns the group's name."""
        return self.group.name


def entries(groups: Sequence[Group]) -> tuple[list[RunDigest], list[str]]:
    """Returns an entry of every group; and notes on traces that could not be read, of which there are summaries
    only."""
    notes: list[str] = []
    found = []
    for look, group in zip(style.looks([group.first.scheme for group in groups]), groups, strict=True):
        digests = []
        for run in group.runs:
            try:
                digests.append(digest(run))
            except PacelineError as error:
                notes.append(f"{error}; in tables and bars only")
                digests.append(Digest(run, 0.0))
        found.append(RunDigest(look, group, digests))
    return found, notes


def digest(run: RunFolder) -> Digest:
    """Returns the digest of a run. Raises PacelineError when the trace cannot be read."""
    d = Digest(run, first_steps(run.summary))
    for record in run.records():
        match record:
            case Evaluated():
                d.evaluations.append(record)
            case Span():
                d.exchanged += [record.at] * record.exchanges
                if record.at - record.seconds < d.until:
                    d.begin.append(record)
            case Applied(shard=0):
                d.staleness[record.staleness] += len(record.ranks)
                if record.at <= d.until:
                    d.begin.append(record)
    d.evaluations.sort(key=lambda evaluated: evaluated.at)
    d.exchanged.sort()
    return d


def first_steps(summary: Summary) -> float:
    """Returns the seconds in which the slowest worker makes STEPS_SHOWN steps: so few that the others' can still be
    seen."""
    slowest = max((w.seconds_computing / w.steps for w in summary.workers if w.steps), default=summary.seconds)
    return min(summary.seconds, STEPS_SHOWN * slowest)
