"""Bounds how long a run may take for each of its phases, except for training itself."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Protocol

from paceline.core.coordination.lifecycle import WAIT_SECONDS, RunPhase, moving_seconds
from paceline.core.coordination.party import Party
from paceline.core.errors import PacelineError

INTERRUPT_SECONDS = {"SIGTERM": 10.0, "SIGINT": 2.5, "SIGHUP": 2.5}
"""Seconds in which a run ends after a signal. With Ctrl-C it is over within 5 s altogether; batch systems give 30 s."""


class RunFailed(PacelineError):  # noqa: N818
    """Is raised when the run cannot go on; the message names the root cause."""


class Phases(Protocol):
    """Describes what a deadline asks a coordinator."""

    @property
    def phase(self) -> RunPhase:
        """Returns the phase of the run."""

    @property
    def stopping(self) -> bool:
        """Returns True once a stop rule holds."""

    @property
    def length(self) -> int:
        """Returns the parameters of the model; 0 until they are known."""

    def missing(self) -> list[Party]:
        """Returns the parties that the phase still waits for."""


class Deadline:
    """Bounds every phase but training itself: the first by `--connect-timeout`, each other one by WAIT_SECONDS, and by
    the time that the model needs on its way besides."""

    def __init__(
        self,
        coordinator: Phases,
        clock: Callable[[], float] = time.monotonic,
        *,
        start_s: float = WAIT_SECONDS,
        hint: Callable[[Party], str] = lambda who: "",
    ) -> None:
        """start_s: seconds within which every process has to connect. hint: says where the log of a party lies."""
        self._coordinator, self._clock = coordinator, clock
        self._start_s, self._hint = start_s, hint
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

    def check(self) -> None:
        """Raises RunFailed, naming whom the run waits for, if the present phase takes too long."""
        now = self._clock()
        phase = (self._coordinator.phase, self._coordinator.stopping)
        if phase != self._phase:
            self._phase, self._began = phase, now
        at_most = WAIT_SECONDS + moving_seconds(self._coordinator.length)
        if phase[0] is RunPhase.GATHERING:
            at_most = self._start_s
        if phase == (RunPhase.TRAINING, False):
            at_most = math.inf
        if now > min(self._began + at_most, self._last):
            late = self._coordinator.missing()
            missing = ", ".join(str(who) for who in late[:4]) or "the workers"
            what = "stopping the workers" if phase[1] else phase[0].value
            seconds = at_most if now > self._began + at_most else self._seconds
            way_out = "; --connect-timeout gives processes longer" if phase[0] is RunPhase.GATHERING else ""
            raise RunFailed(
                f"waited {seconds:.0f} s for {missing} while {what}{self._hint(late[0]) if late else ''}{way_out}"
            )
