"""Bounds how long a run may take for each of its phases, except for training itself.

    phase                          may take
    GATHERING                      `start_s`: until all processes have connected
    before training, FINISHING     WAIT_SECONDS, and the time that the model needs on its way besides
    TRAINING, told to stop         the same
    TRAINING                       as long as it likes: `elasticity.py` looks for the silent and the stuck
    any, after `at_most`           what is left of that

A process that is there and does not answer would hold the run up for ever: its connection is in order, and nobody looks
for progress before there is any. Whoever drives this looks several times a second and ends the run as failed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from paceline.core.coordination.lifecycle import WAIT_SECONDS, RunPhase, moving_seconds
from paceline.core.coordination.party import Party

NAMED_MAX = 4
"""Parties that the error names at most."""


class Phases(Protocol):
    """Describes what a deadline asks a coordinator."""

    @property
    def phase(self) -> RunPhase:
        """Returns the phase of the run."""

    @property
    def stopping(self) -> bool:
        """Returns True while workers that train have been told to stop."""

    @property
    def length(self) -> int:
        """Returns the parameters of the model; 0 until they are known."""

    def missing(self) -> list[Party]:
        """Returns the parties that the phase still waits for."""


class PhaseDeadline:
    """Decides for one run. `clock`: returns seconds, and never runs backwards."""

    def __init__(self, coordinator: Phases, clock: Callable[[], float], *, start_s: float = WAIT_SECONDS) -> None:
        """`start_s`: seconds within which every process has to connect."""
        self._coordinator, self._clock, self._start_s = coordinator, clock, start_s
        self._phase: tuple[RunPhase, bool] | None = None
        self._began = 0.0
        self._last = self._seconds = math.inf

    def at_most(self, seconds: float) -> None:
        """Bounds everything from now on by `seconds` altogether."""
        self._last, self._seconds = self._clock() + seconds, seconds

    @property
    def expired(self) -> bool:
        """Returns True if the time of `at_most` has passed."""
        return self._clock() > self._last

    @property
    def gathers(self) -> bool:
        """Returns True while processes have not connected yet."""
        return self._coordinator.phase is RunPhase.GATHERING

    def missing(self) -> list[Party]:
        """Returns the parties that the present phase still waits for."""
        return self._coordinator.missing()

    def overdue(self) -> str:
        """Returns that the present phase takes too long, and whom the run waits for; empty while it does not."""
        now = self._clock()
        phase = (self._coordinator.phase, self._coordinator.stopping)
        if phase != self._phase:
            self._phase, self._began = phase, now
        at_most = WAIT_SECONDS + moving_seconds(self._coordinator.length)
        if self.gathers:
            at_most = self._start_s
        if phase in ((RunPhase.TRAINING, False), (RunPhase.OVER, False)):
            at_most = math.inf
        if now <= min(self._began + at_most, self._last):
            return ""
        missing = ", ".join(str(who) for who in self.missing()[:NAMED_MAX]) or "the workers"
        what = "stopping the workers" if phase[1] else phase[0].value
        seconds = at_most if now > self._began + at_most else self._seconds
        return f"waited {seconds:.0f} s for {missing} while {what}"
