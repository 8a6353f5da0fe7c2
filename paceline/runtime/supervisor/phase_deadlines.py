"""How long a run may take over each of its phases, but training itself."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Protocol

from paceline.core.errors import PacelineError
from paceline.live.coordinator.lifecycle import WAIT_SECONDS, RunPhase, moving_seconds
from paceline.live.party import Party

INTERRUPT_SECONDS = {"SIGTERM": 10.0, "SIGINT": 2.5, "SIGHUP": 2.5}  # Ctrl-C: 5 s altogether; batch systems give 30


class RunFailed(PacelineError):  # noqa: N818
    """The run could not go on; the message names the first cause."""


class Phases(Protocol):
    """A coordinator, or what is known of it."""

    @property
    def phase(self) -> RunPhase: ...

    @property
    def stopping(self) -> bool: ...

    @property
    def length(self) -> int:
        """Of the model; 0 until it is known."""

    def missing(self) -> list[Party]: ...


class Deadline:
    """Bounds every phase of a run but training itself: by what it may take, and the model on its way besides."""

    def __init__(self, coordinator: Phases, clock: Callable[[], float] = time.monotonic) -> None:
        self._coordinator, self._clock = coordinator, clock
        self._phase: tuple[RunPhase, bool] | None = None
        self._began = 0.0
        self._last = self._seconds = math.inf

    def at_most(self, seconds: float) -> None:
        """From now on nothing may take longer than `seconds` altogether."""
        self._last, self._seconds = self._clock() + seconds, seconds

    @property
    def expired(self) -> bool:
        """Has that time passed?"""
        return self._clock() > self._last

    def check(self) -> None:
        """Raises RunFailed, naming whom we wait for."""
        now = self._clock()
        phase = (self._coordinator.phase, self._coordinator.stopping)
        if phase != self._phase:
            self._phase, self._began = phase, now
        at_most = WAIT_SECONDS + moving_seconds(self._coordinator.length)
        if phase == (RunPhase.TRAINING, False):
            at_most = math.inf
        if now > min(self._began + at_most, self._last):
            missing = ", ".join(str(who) for who in self._coordinator.missing()[:4]) or "the workers"
            what = "stopping the workers" if phase[1] else phase[0].value
            seconds = at_most if now > self._began + at_most else self._seconds
            raise RunFailed(f"waited {seconds:.0f} s for {missing} while {what}")
