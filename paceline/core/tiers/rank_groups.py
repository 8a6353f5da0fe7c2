"""Says which workers form a group: as the user writes it, or by where they run.

    auto   by site, where the workers are at several sites; else by host, where some host has several workers;
           else two halves, in the order of the ranks

A worker has a number within its group, its place in the group's tuple. Inner schemes know workers by that number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from paceline.core.adaptive.grouping import Groups


@dataclass(frozen=True, eq=False)
class RankGroups:
    """Holds the groups, and finds a worker's group and its number in it by rank."""

    groups: Groups
    group_of: dict[int, int] = field(init=False)
    number_of: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        places = [(rank, g, number) for g, group in enumerate(self.groups) for number, rank in enumerate(group)]
        object.__setattr__(self, "group_of", {rank: g for rank, g, _ in places})
        object.__setattr__(self, "number_of", {rank: number for rank, _, number in places})


def groups_by_place(hosts: Sequence[str], sites: Sequence[str], workers: int) -> Groups:
    """Returns the groups of `auto`; `hosts` and `sites` by rank, empty where nobody knows them."""
    for places in (sites, hosts):
        found = _equal(places)
        if 1 < len(found) < len(places):
            return found
    half = (workers + 1) // 2
    return tuple(group for group in (tuple(range(half)), tuple(range(half, workers))) if group)


def _equal(places: Sequence[str]) -> Groups:
    groups: dict[str, list[int]] = {}
    for rank, place in enumerate(places):
        groups.setdefault(place, []).append(rank)
    return tuple(map(tuple, groups.values()))
