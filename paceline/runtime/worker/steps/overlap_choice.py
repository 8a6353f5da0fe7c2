"""Decides step by step whether a worker overlaps its exchange with its computation (`--overlap`).

    on      every step whose gradient the scheme takes while it arrives
    auto    such steps while they are tried both ways (`overlap_trial.py`), then the faster way
    off     there is no `OverlapChoice`

    turn       a step is over: its seconds go to the trial, and the next step's way is decided
    (loop)     the exchange ends; weights are loaded at once, or each layer's when forward needs it
    prepare    the loop has its next piece of work

Nothing is made before the scheme asks for a gradient that may stream, so schemes that never do have no hooks. Where
overlap has lost, its hooks are removed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from paceline.core.effects import Compute, Train
from paceline.runtime.worker.steps.local_work import LocalWork
from paceline.runtime.worker.steps.overlap import Overlap
from paceline.runtime.worker.steps.overlap_trial import OverlapTrial, TrialResult


class OverlapChoice:
    """Holds the overlap of one worker. `make` makes it; `trial` is None where it is not in question.

    decided: is told the result of the trial. clock: returns seconds and is monotonic.
    now: the overlap of the step under way; None if that step does not overlap.
    """

    def __init__(
        self,
        make: Callable[[], Overlap],
        work: LocalWork,
        trial: OverlapTrial | None,
        decided: Callable[[TrialResult], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make, self._work, self._trial, self._decided, self._clock = make, work, trial, decided, clock
        self._made: Overlap | None = None
        self._turned_at: float | None = None  # if the step that has begun is one of the trial
        self._lost = False
        self.now: Overlap | None = None

    def turn(self) -> None:
        """Decides whether the next step overlaps, before its weights arrive."""
        if self._lost:
            return
        if self._trial is not None:
            self._time(self._trial)
        self._work.late = not self._lost and (self._trial is None or self._trial.overlaps)

    def prepare(self, wanted: Compute | Train) -> None:
        """Prepares the step that does `wanted`. Its weights are loaded or arriving, and its gradients are clean."""
        self.now = None
        if self._lost:
            return
        if not (isinstance(wanted, Compute) and wanted.streams and wanted.steps == 1):
            self._turned_at = None
            if self._made is None:
                return
        elif self._made is None:
            self._made = self._make()
        if self._work.late:
            self.now = self._made
            self._made.prepare(wanted)

    def end(self) -> None:
        """Removes the hooks from the module; no later step overlaps."""
        self.now, self._lost, self._work.late = None, True, False
        if self._made is not None:
            self._made.end()
            self._made = None

    def _time(self, trial: OverlapTrial) -> None:
        """Gives the trial the seconds of the step that is over, if it was one of the trial; ends an overlap that has
        lost."""
        now = self._clock()
        if trial.result is None and self._turned_at is not None:
            trial.stepped(now - self._turned_at)
            if trial.result is not None:
                self._decided(trial.result)
                if not trial.result.overlaps:
                    self.end()
        self._turned_at = now
