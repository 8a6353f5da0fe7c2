"""Checks workers that are drained: their processes end while the others go on.

What they sent and what they hold is checked by the oracles of deliveries, samples, contributions and mass, like that of
all who leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paceline.sim.kernel.processes import SimulatedProcess

Process = tuple[str, int]


class Drains:
    """Notes who is drained. `broken` makes the error of a violation."""

    def __init__(self, broken: Callable[[str], AssertionError]) -> None:
        self._broken = broken
        self._began: set[Process] = set()
        self._exited: set[Process] = set()

    def begins(self, process: Process) -> None:
        """Notes that a process leaves because it is drained."""
        self._began.add(process)

    def began(self, process: Process) -> bool:
        """Returns True if that process is drained."""
        return process in self._began

    def exits(self, party: SimulatedProcess, training: Sequence[str]) -> None:
        """Notes that the process of `party` may exit while the run goes on. Raises if it was not drained, still trains,
        is told so twice, or if nobody trains who could go on."""
        if party.process not in self._began:
            raise self._broken(f"{party.name} may exit while the run goes on, and is not drained")
        if party.name in training:
            raise self._broken(f"{party.name} is drained, and still trains when it may exit")
        if party.process in self._exited:
            raise self._broken(f"{party.name} is drained, and may exit twice")
        self._exited.add(party.process)
