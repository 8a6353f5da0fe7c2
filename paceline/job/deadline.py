"""How long a run may take over each of its phases, but training itself."""

from __future__ import annotations

import math
import time
from typing import Protocol

from paceline.core.errors import PacelineError
from paceline.live.party import Party
from paceline.live.phases import Phase

PHASE_SECONDS = 120.0
INTERRUPT_SECONDS = {"SIGTERM": 10.0, "SIGINT": 2.5, "SIGHUP": 2.5}  # Ctrl-C: 5 s altogether; batch systems give 30


class RunFailed(PacelineError):  # noqa: N818
    """The run could not go on; the message names the first cause."""


class Phases(Protocol):
    """A coordinator, or what is known of it."""

    @property
    def phase(self) -> Phase: ...

    @property
    def stopping(self) -> bool: ...

    def missing(self) -> list[Party]: ...


class Deadline:
    """Bounds every phase of a run but training itself."""

    def __init__(self, coordinator: Phases) -> None:
        self._coordinator = coordinator
        self._phase: tuple[Phase, bool] | None = None
        self._at = self._last = self._seconds = math.inf

    def at_most(self, seconds: float) -> None:
        """From now on nothing may take longer than `seconds` altogether."""
        self._last, self._seconds = time.monotonic() + seconds, seconds

    @property
    def expired(self) -> bool:
        """Has that time passed?"""
        return time.monotonic() > self._last

    def check(self) -> None:
        """Raises RunFailed, naming whom we wait for."""
        now = time.monotonic()
        phase = (self._coordinator.phase, self._coordinator.stopping)
        if phase != self._phase:
            self._phase = phase
            self._at = math.inf if phase == (Phase.TRAINING, False) else now + PHASE_SECONDS
        if now > min(self._at, self._last):
            missing = ", ".join(str(who) for who in self._coordinator.missing()[:4]) or "the workers"
            what = "stopping the workers" if phase[1] else phase[0].value
            seconds = PHASE_SECONDS if now > self._at else self._seconds
            raise RunFailed(f"waited {seconds:.0f} s for {missing} while {what}")
