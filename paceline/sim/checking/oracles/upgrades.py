"""Checks how a run meets processes of another version: none takes part, each is told why, and the right ones enter.

It hears which process is started, refused and let in, and the versions that are drawn. How long one that was refused
must be waited for it computes itself; it does not read the supervisor's machine.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from paceline.core.parties.first_contact import PROTOCOL_VERSION

Process = tuple[str, int]
"""A party's name and its incarnation."""
OTHERS = (PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1)
"""The versions that are drawn beside that of the run: an older and a newer one."""
PAUSE_MAX_S = {"worker": 30.0, "server": 8.0}
"""The longest wait after a refusal: a run stands still without a server."""


@dataclass(frozen=True)
class Upgrades:
    """Says which version each host has when, and which processes end.

    restarts  how often a lost worker is started again
    other     by party: the version that a process has that starts between two virtual times, otherwise the run's
    ends      names, and when their process of the moment ends
    late      ranks of workers that are started later, and when
    silent    how likely a refused caller hears nothing but that its connection was closed
    kills     the supervisor can kill the process of a lost party, so its host can be reached
    """

    restarts: int = 3
    other: Mapping[str, tuple[int, float, float]] = field(default_factory=dict)
    ends: tuple[tuple[str, float], ...] = ()
    late: tuple[tuple[int, float], ...] = ()
    silent: float = 0.0
    kills: bool = True

    def version(self, name: str, now: float) -> int:
        """Returns the version of a process of that party that starts now."""
        version, since, until = self.other.get(name, (PROTOCOL_VERSION, 0.0, 0.0))
        return version if since <= now < until else PROTOCOL_VERSION

    def right_since(self, name: str) -> float:
        """Returns from when on all processes of that party that start have the run's version."""
        return self.other[name][2] if name in self.other else -math.inf


class UpgradeOracle:
    """Notes what becomes of the processes of one run. `now`: returns the virtual time."""

    def __init__(self, broken: Callable[[str], AssertionError], upgrades: Upgrades, now: Callable[[], float]) -> None:
        self._broken, self._upgrades, self._now = broken, upgrades, now
        self._in_a_row: Counter[str] = Counter()  # refusals of each party, since one has joined
        self._refused_at: dict[str, float] = {}
        self._said: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()  # of each party

    def started(self, name: str) -> None:
        """Notes that a process starts. After refusals it must have been waited for, the longer the more there were."""
        row = self._in_a_row[name]
        if row:
            least = min(PAUSE_MAX_S[name.partition(" ")[0]], 2.0 ** (row - 1))
            waited = self._now() - self._refused_at[name]
            if waited < least - 1e-6:
                raise self._broken(f"{name} is tried again after {waited:.2f} s, refused {row} times in a row")

    def refused(self, name: str, version: int, why: str) -> None:
        """Notes that a process has ended since it was refused, and why as it says."""
        self.refusals[name] += 1
        self._in_a_row[name] += 1
        self._refused_at[name] = self._now()
        if version == PROTOCOL_VERSION:
            raise self._broken(f"{name} is refused though it has the version of the run: {why}")
        if missing := [v for v in (version, PROTOCOL_VERSION) if f" {v}" not in why]:
            raise self._broken(f"{name} is refused, and version {missing[0]} is not named: {why}")

    def ended(self, name: str) -> None:
        """Notes that a process has ended for another reason."""
        self._in_a_row.pop(name, None)

    def joined(self, name: str, version: int, *, is_last: bool = True) -> None:
        """Notes that the coordinator counts with a process. `is_last`: no later one of that party has started."""
        if is_last:
            self._in_a_row.pop(name, None)
            self._said.pop(name, None)
        if version != PROTOCOL_VERSION:
            raise self._broken(f"{name} takes part, and speaks version {version} in a run of {PROTOCOL_VERSION}")

    def shown(self, line: str) -> None:
        """Notes a line that the user reads. Refusals of one party are said once, until one of its processes joins."""
        name = " ".join(line.split()[:2]).rstrip(":")
        self._said[name] += "protocol version" in line
        if self._said[name] > 1:
            raise self._broken(f"the refusal of {name} is said again: {line}")

    def failed(self, cause: str) -> None:
        """Takes the end of a run that fails: where a party is named that was refused, both versions are."""
        named = [name for name, row in self._in_a_row.items() if row and name in cause]
        if named and f"version {PROTOCOL_VERSION}" not in cause:
            raise self._broken(f"the run fails for {named[0]}, which was refused, and does not say so: {cause}")

    def all_are_back(self, present: Collection[str], excused: Collection[str], since: float) -> None:
        """Takes who takes part in a run that has trained on since `since` without faults."""
        gone = [
            name
            for name in sorted({*self._upgrades.other, *(name for name, _ in self._upgrades.ends)})
            if name not in present and name not in excused and self._upgrades.right_since(name) <= since
        ]
        if gone:
            raise self._broken(f"{gone[0]} does not take part, though it has had the right version for long")
