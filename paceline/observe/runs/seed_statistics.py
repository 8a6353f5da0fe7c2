"""Computes statistics over seeds: mean and spread, and how many times sooner one scheme reached the target than
another."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from paceline.observe.runs.run_folders import Group
from paceline.observe.runs.summary import Summary

PLAIN = re.compile(r"(\d+(?:\.(\d+))?)( s|)")
"""A number whose deviation may be written with its digits and its unit."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Holds mean and standard deviation of a sample of `count` values; the deviation is 0 where there is only one."""

    mean: float
    deviation: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Self | None:
        """Returns the spread of the values that are not None; None without any."""
        there = [value for value in values if value is not None]
        if not there:
            return None
        return cls(statistics.fmean(there), statistics.stdev(there) if len(there) > 1 else 0.0, len(there))

    def text(self, shown: Callable[[float], str]) -> str:
        """Returns `4.1 s`, or with several values `4.1±0.3 s`, with as many digits as the mean."""
        mean = shown(self.mean)
        if self.count == 1:
            return mean
        plain = PLAIN.fullmatch(mean)
        if plain is None:
            return f"{mean}±{shown(self.deviation)}"
        number, digits, unit = plain.groups()
        return f"{number}±{self.deviation:.{len(digits or '')}f}{unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedStatistics:
    """Holds the statistics of one group. Seconds to the target and speed-up are over the `reached` runs that reached
    it."""

    group: Group
    reached: int
    seconds_to_target: Spread | None
    speedup: Spread | None
    accuracy: Spread | None
    loss: Spread | None
    samples_per_second: Spread | None

    @property
    def name(self) -> str:
        """Returns the group's name."""
        return self.group.name


def baseline(groups: Sequence[Group]) -> Group:
    """Returns what the others are compared with: BSP if it reached the target, or the first that did, or the first."""
    there = [g for g in groups if any(s.seconds_to_target for s in g.summaries)]
    return next((g for g in there if g.first.scheme == "bsp"), next(iter(there), groups[0]))


def standings(groups: Sequence[Group]) -> list[SeedStatistics]:
    """Returns the groups best first: by the share of runs that reached the target, by the time it took, by accuracy."""
    reference = baseline(groups) if groups else None
    return sorted((_standing(group, reference) for group in groups), key=_order)


def _standing(group: Group, reference: Group | None) -> SeedStatistics:
    """Returns the statistics of one group, compared with `reference`."""
    summaries = group.summaries
    return SeedStatistics(
        group=group,
        reached=sum(s.seconds_to_target is not None for s in summaries),
        seconds_to_target=Spread.of(s.seconds_to_target for s in summaries),
        speedup=Spread.of(speedups(group, reference)) if reference else None,
        accuracy=Spread.of(s.test_accuracy for s in summaries),
        loss=Spread.of(s.test_loss for s in summaries if s.test_accuracy is None),
        samples_per_second=Spread.of(s.samples_per_second for s in summaries),
    )


def speedups(group: Group, reference: Group) -> list[float | None]:
    """Compares each run with the reference's run of the same seed, else with the mean of those."""
    of_seed = {s.seed: s.seconds_to_target for s in reference.summaries}
    mean = Spread.of(of_seed.values())
    if mean is None:
        return []
    if group is reference:
        return [1.0]
    return [_ratio(of_seed.get(s.seed) or mean.mean, s) for s in group.summaries]


def _ratio(seconds: float, summary: Summary) -> float | None:
    """Returns how many times sooner than `seconds` the run reached its target; None if it did not."""
    return seconds / summary.seconds_to_target if summary.seconds_to_target else None


def _order(standing: SeedStatistics) -> tuple[float, ...]:
    """Returns the key by which groups are ranked."""
    seconds = standing.seconds_to_target.mean if standing.seconds_to_target else 0.0
    accuracy = standing.accuracy.mean if standing.accuracy else -1.0
    loss = standing.loss.mean if standing.loss else math.inf
    return -standing.reached / len(standing.group.runs), seconds, -accuracy, loss
