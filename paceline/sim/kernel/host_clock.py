"""What the monotonic clock of a process shows: it runs fast or slow, and jumps ahead.

    shown
      |          /
      |         /      rate: seconds by which it gains in each second, or loses where that is negative
      |        |       a jump: the process was stopped, or its machine was suspended
      |       /
      +--------------  virtual time

A timer of that process is due when its clock shows the time, so one that a jump has passed rings at once.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostClock:
    """`jumps`: virtual time and seconds of each, in their order."""

    rate: float = 0.0
    jumps: tuple[tuple[float, float], ...] = ()

    def reads(self, now: float) -> float:
        """Returns what it shows at virtual time `now`, in seconds."""
        return now * (1 + self.rate) + sum(by for at, by in self.jumps if at <= now)

    def shows(self, reading: float) -> float:
        """Returns the first virtual time at which it shows at least `reading`."""
        jumped = 0.0
        for at, by in self.jumps:
            if (reading - jumped) / (1 + self.rate) < at:
                break
            jumped += by
            if self.reads(at) >= reading:
                return at
        return (reading - jumped) / (1 + self.rate)


TRUE = HostClock()
"""A clock that shows virtual time."""
