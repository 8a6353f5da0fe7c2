"""Numbers over several seeds: mean and spread, and how many times sooner one scheme was at the target than another."""

from __future__ import annotations

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
    """`deviation`: the standard deviation of a sample; 0 where there is but one."""

    mean: float
    deviation: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Self | None:
        """Of those that there are; None without any."""
        there = [value for value in values if value is not None]
        if not there:
            return None
        return cls(statistics.fmean(there), statistics.stdev(there) if len(there) > 1 else 0.0, len(there))

    def text(self, shown: Callable[[float], str]) -> str:
        """`4.1 s`, or with several `4.1±0.3 s`: as many digits as the mean has."""
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
    """This has the statistics of one group. Seconds to the target and speed-up are over the runs that reached it,
    `reached` of them all.
    """

    group: Group
    reached: int
    seconds_to_target: Spread | None
    speedup: Spread | None
    accuracy: Spread | None
    samples_per_second: Spread | None

    @property
    def name(self) -> str:
        return self.group.name


def baseline(groups: Sequence[Group]) -> Group:
    """What the others are compared with: BSP where it reached the target, or the first that did, or the first."""
    there = [g for g in groups if any(s.seconds_to_target for s in g.summaries)]
    return next((g for g in there if g.first.scheme == "bsp"), next(iter(there), groups[0]))


def standings(groups: Sequence[Group]) -> list[SeedStatistics]:
    """Best first: by the share of runs that reached the target, by the time it took, by accuracy."""
    reference = baseline(groups) if groups else None
    return sorted((_standing(group, reference) for group in groups), key=_order)


def _standing(group: Group, reference: Group | None) -> SeedStatistics:
    summaries = group.summaries
    return SeedStatistics(
        group=group,
        reached=sum(s.seconds_to_target is not None for s in summaries),
        seconds_to_target=Spread.of(s.seconds_to_target for s in summaries),
        speedup=Spread.of(speedups(group, reference)) if reference else None,
        accuracy=Spread.of(s.test_accuracy for s in summaries),
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
    return seconds / summary.seconds_to_target if summary.seconds_to_target else None


def _order(standing: SeedStatistics) -> tuple[float, float, float]:
    seconds = standing.seconds_to_target.mean if standing.seconds_to_target else 0.0
    accuracy = standing.accuracy.mean if standing.accuracy else -1.0
    return -standing.reached / len(standing.group.runs), seconds, -accuracy
