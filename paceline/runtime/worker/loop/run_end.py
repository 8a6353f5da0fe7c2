"""Whether a worker's part in its run is over, and why."""

from __future__ import annotations

from paceline.runtime.worker.loop.batch_sizes import BatchSizes
from paceline.runtime.worker.loop.joined_run import JoinedRun
from paceline.runtime.worker.loop.progress import ProgressCounters


class RunEnd:
    """Of one worker."""

    def __init__(self, run: JoinedRun, counts: ProgressCounters, sizes: BatchSizes) -> None:
        self._run, self._counts, self._sizes = run, counts, sizes
        self._session, self._steps_max = run.session, run.spec.steps  # asked for at every batch
        self.closed = False  # has the loop closed it?
        self.asked = ""  # why the loop has asked that the run ends for all

    @property
    def over(self) -> bool:
        """Is the run over, for this worker at least?"""
        return self.ended or bool(self._session.notice)

    @property
    def ended(self) -> bool:
        """The same, but for a worker that is drained and still hands over its step."""
        if self.closed or self.asked or self._sizes.spent or self._session.over.is_set():
            return True
        return self._steps_max > 0 and self._steps_done

    @property
    def notice(self) -> str:
        """Returns why this worker is drained while others go on; empty if it is not."""
        return self._session.notice

    @property
    def reason(self) -> str:
        if self._session.stop_reason or self.notice:
            return self._session.stop_reason or self.notice
        if self.asked:
            return self.asked
        if self._sizes.spent:
            return "epochs"
        return "steps" if self._steps_done else "every worker was done"

    @property
    def _steps_done(self) -> bool:
        return 0 < self._steps_max <= self._counts.steps + self._run.former_steps
