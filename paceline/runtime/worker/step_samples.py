"""Decides how many samples a step has. Means are weighted by them, and rules, schedules and reports count them.

first that knows                           how many
the loop                                   `pace.step(n)`; a framework sets `pace.optimizer.samples`
the data side                              the batches of `pace.batches` or `pace.loader` since the last step
calls of the model                         `paceline.engine.forward_samples`; worker 0 prints it once
nobody, and others go by the number        an error with the way out
nobody, and nothing goes by the number     1
"""

from __future__ import annotations

import sys

from paceline.core.errors import ConfigError
from paceline.engine.forward_samples import ForwardSamples
from paceline.runtime.worker.loop.batch_feed import BatchFeed
from paceline.runtime.worker.loop.joined_run import JoinedRun
from paceline.runtime.worker.steps.loop_checks import LoopGuard
from paceline.runtime.worker.steps.lr_watch import LrFollower


class StepSamples:
    """Decides for one worker."""

    def __init__(
        self,
        run: JoinedRun,
        feed: BatchFeed,
        calls: ForwardSamples,
        guard: LoopGuard,
        rate: LrFollower,
    ) -> None:
        self._run, self._feed, self._calls, self._guard, self._rate = run, feed, calls, guard, rate
        calls.wanted, calls.batch = lambda: True, lambda: feed.number
        feed.trained_among = calls.trained_among
        self._of_feed: int | None = None  # samples of the step, as they were when it began
        self._printed = False

    def check_batches(self) -> None:
        """Raises ConfigError where the user counts calls of the model, and the loop takes batches that count items."""
        if self._calls.by_user:
            raise ConfigError(
                "join(samples_of=...) is for batches of the loop's own, and pace.batches and pace.loader count items; "
                "a function of the batch goes to pace.loader(samples_of=...)"
            )

    def take(self) -> int | None:
        """Returns the samples of the calls of the model since the last step; None if there was none."""
        self._of_feed = self._feed.samples
        return self._calls.take()

    def of(self, given: int | None, counted: int | None) -> int:
        """Returns the samples of the step. Raises ConfigError where nobody knows them and others go by them.

        `given`: by the loop; `counted`: by calls of the model.
        """
        if given is not None:
            return given
        if self._feed.feeds:
            return max(1, self._feed.samples if self._of_feed is None else self._of_feed)
        if counted is not None:
            self._print_once(counted)
            return counted
        if self._matter and self._guard.has_gradient:
            raise ConfigError(
                f"pace.step() does not know how many samples this step has: {self._calls.why_unknown}; "
                "call pace.step(n) with their number"
            )
        return 1

    @property
    def _matter(self) -> bool:
        """Returns True if other workers, a rule that ends the run or a schedule go by this worker's samples."""
        plan = self._run.plan
        return plan.workers > 1 or plan.samples > 0 or self._rate.by_samples

    def _print_once(self, counted: int) -> None:
        """Prints how samples are counted, on worker 0, where the user has not said how."""
        if self._printed or self._run.rank or self._calls.by_user or not self._matter:
            return
        self._printed = True
        print(
            f"paceline: worker 0 counts {counted} samples a step: the first dimension of the input of "
            f"{self._calls.names}; pace.step(n) or join(samples_of=...) overrides",
            file=sys.stderr,
        )

    def stepped(self) -> None:
        """Begins the next step. What an optimizer that evaluates the model has called meanwhile was for its step."""
        self._of_feed = None
        self._feed.stepped()
        self._calls.cleared()

    def cleared(self, skipped: bool) -> None:
        """Forgets what was counted for the next step: its gradients are gone, in a step that a scaler `skipped` or
        without one."""
        self._feed.cleared(skipped)
        self._calls.cleared()

    def end(self) -> None:
        """Gives the model back to the loop."""
        self._calls.end()
