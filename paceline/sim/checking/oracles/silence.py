"""Checks that nobody is declared lost as silent who was heard: a clock that jumps is no silence.

It notes the virtual time at which each party was last heard, and never reads the coordinator's clock. A clock may gain,
and what is heard just before it jumps counts as older by an eighth of the allowed silence. A run has three jumps at
most, so the bound is a share of the silence that the coordinator allows.
"""

from __future__ import annotations

from collections.abc import Callable

from paceline.core.trace import MemberChange, Record

SHARE = 0.55
"""Three jumps count as three eighths of the allowed silence, by `Membership.tick`; the rest is for a clock that gains
and for the time between two reports."""


class Silence:
    """`dead_s`: silence in seconds after which a party is declared lost; `now` returns the virtual time."""

    def __init__(self, broken: Callable[[str], AssertionError], dead_s: float, now: Callable[[], float]) -> None:
        self._broken, self._dead_s, self._now = broken, dead_s, now
        self._heard: dict[str, float] = {}

    def heard(self, party: str) -> None:
        """Notes that something has come from a party, by its name."""
        self._heard[party] = self._now()

    def recorded(self, record: Record) -> None:
        """Takes a record of the coordinator."""
        if isinstance(record, MemberChange) and record.event == "lost" and record.reason.startswith("silent for"):
            silent_s = self._now() - self._heard.get(record.party, 0.0)
            if silent_s < SHARE * self._dead_s:
                raise self._broken(f"{record.party} is lost ({record.reason}); it was heard {silent_s:.2f} s before")
