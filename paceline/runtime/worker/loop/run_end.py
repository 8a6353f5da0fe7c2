"""Decides whether a worker's part in its run is over, and why.

first that holds                       reason
the coordinator stopped the run        its reason
SIGTERM (drained)                      SIGTERM
the loop called `pace.stop`            the loop's reason
no samples are left to train           epochs, or samples where the user gave their number
this worker made its --steps           steps
otherwise                              every worker was done
"""

from __future__ import annotations

from paceline.core.coordination.lifecycle import EPOCHS
from paceline.runtime.worker.loop.batch_sizes import BatchSizes
from paceline.runtime.worker.loop.joined_run import JoinedRun
from paceline.runtime.worker.loop.progress import ProgressCounters


class RunEnd:
    """Decides for one worker."""

    def __init__(self, run: JoinedRun, counts: ProgressCounters, sizes: BatchSizes) -> None:
        self._run, self._counts, self._sizes = run, counts, sizes
        self._session, self._steps_max = run.session, run.spec.steps  # asked for at every batch
        self.closed = False  # has the loop closed it?
        self.superseded = False  # has another `join` of this process ended it?
        self.asked = ""  # why the loop has asked that the run ends for all

    @property
    def over(self) -> bool:
        """Returns True if the run is over, for this worker at least."""
        return bool(self._session.notice) or self._session.over.is_set() or self.ended

    @property
    def ended(self) -> bool:
        """Returns the same, but False for a worker that is stopped or drained while it makes a step."""
        if self.closed or self.asked or self._sizes.spent:
            return True
        return self._steps_max > 0 and self._steps_done

    @property
    def notice(self) -> str:
        """Returns why this worker is drained while others go on; "" if it is not."""
        return self._session.notice

    @property
    def reason(self) -> str:
        """Returns why this worker leaves, for the coordinator and the trace."""
        if self._session.stop_reason or self.notice:
            return self._session.stop_reason or self.notice
        if self.asked:
            return self.asked
        if self._sizes.spent:
            return EPOCHS
        return "steps" if self._steps_done else "every worker was done"

    @property
    def _steps_done(self) -> bool:
        """Returns True if this worker has made all steps of its own, earlier incarnations included."""
        return 0 < self._steps_max <= self._counts.steps + self._run.former_steps
