"""Ends a run as failed that takes too long for a phase, as `paceline.core.coordinator.phase_deadline` decides."""

from __future__ import annotations

import time
from collections.abc import Callable

from paceline.core.coordination.lifecycle import WAIT_SECONDS
from paceline.core.coordination.party import Party
from paceline.core.coordinator.phase_deadline import PhaseDeadline, Phases
from paceline.core.errors import PacelineError

INTERRUPT_SECONDS = {"SIGTERM": 10.0, "SIGINT": 2.5, "SIGHUP": 2.5}
"""Seconds in which a run ends after a signal. With Ctrl-C it is over within 5 s altogether; batch systems give 30 s."""


class RunFailed(PacelineError):  # noqa: N818
    """Is raised when the run cannot go on; the message names the root cause."""


class Deadline(PhaseDeadline):
    """Bounds every phase of a live run but training itself."""

    def __init__(
        self,
        coordinator: Phases,
        clock: Callable[[], float] = time.monotonic,
        *,
        start_s: float = WAIT_SECONDS,
        hint: Callable[[Party], str] = lambda who: "",
    ) -> None:
        """start_s: seconds within which every process has to connect. hint: says where the log of a party lies."""
        super().__init__(coordinator, clock, start_s=start_s)
        self._hint = hint

    def check(self) -> None:
        """Raises RunFailed, naming whom the run waits for, if the present phase takes too long."""
        if cause := self.overdue():
            late = self.missing()
            way_out = "; --connect-timeout gives processes longer" if self.gathers else ""
            raise RunFailed(f"{cause}{self._hint(late[0]) if late else ''}{way_out}")
