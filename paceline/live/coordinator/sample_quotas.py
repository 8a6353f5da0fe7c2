"""Who trains how many samples, and which, as the coordinator gives them out.

Where a run ends after so many samples, workers ask for quotas of them (`core/samples/sample_budget.py`). Loops that
share a data set by speed draw the samples themselves from a queue for all (`core/samples/sample_queue.py`).
"""

from __future__ import annotations

from paceline.core.errors import ProtocolError
from paceline.core.samples.sample_budget import Budget
from paceline.core.samples.sample_queue import SampleQueue
from paceline.live.coordinator.lifecycle import StopRule
from paceline.live.coordinator.progress_totals import ProgressTotals
from paceline.live.protocol import control_messages as control
from paceline.live.protocol import loop_messages

STREAMS_MAX = 1000
"""Data sets of one loop."""


class Quotas:
    """What a worker has trained is what it told; what a lost one had not told any more is trained by others."""

    def __init__(self, stop_rule: StopRule, totals: ProgressTotals) -> None:
        self._budget = None if stop_rule.samples is None else Budget(stop_rule.samples - stop_rule.behind)
        self._stop_rule, self._totals = stop_rule, totals
        self._queues: dict[int, SampleQueue] = {}  # by data set of the loop

    def quota(self, rank: int, ask: control.Ask, *, training: int) -> int:
        """For worker `rank`, where so many are training. Raises ProtocolError for what nobody can ask for."""
        if ask.samples < 1 or ask.batch < 1:
            raise ProtocolError(f"worker {rank} asks for {ask.samples} samples in mini-batches of {ask.batch}")
        return self._budget.quota(rank, ask.samples, ask.batch, training) if self._budget else 0

    def draw(self, rank: int, draw: loop_messages.Draw, *, training: int) -> loop_messages.Drawn:
        """For worker `rank`, where so many are training. Raises ProtocolError for another data set than others have."""
        queue = self._queues.get(draw.stream)
        if queue is None:
            queue = self._queues[draw.stream] = self._make_queue(draw)
        if queue.samples != draw.samples:
            raise ProtocolError(
                f"worker {rank} shares a data set of {draw.samples} samples with others that have {queue.samples}: all "
                "give the same one to pace.batches; where each has data of its own, it takes its own DataLoader"
            )
        queue.trained(rank, draw.trained)
        places = None
        if draw.wanted:
            places = queue.take(rank, draw.wanted, max(1, draw.batch), epochs=draw.epochs, workers=training)
        start, stop = places or (0, 0)
        return loop_messages.Drawn(stream=draw.stream, start=start, stop=stop, over=queue.over)

    def _make_queue(self, draw: loop_messages.Draw) -> SampleQueue:
        """A rule that ends the run counts the first data set of a loop."""
        if draw.samples < 1 or draw.stream > STREAMS_MAX:
            raise ProtocolError(f"data set {draw.stream} of {draw.samples} samples: there can be no such")
        rule = self._stop_rule
        ends = [rule.samples or 0, round((rule.epochs or 0) * draw.samples)]
        return SampleQueue(draw.samples, None if draw.stream else min(filter(None, ends), default=None))

    def gone(self, rank: int) -> None:
        """This incarnation of worker `rank` is over."""
        for queue in self._queues.values():
            queue.gone(rank)
        if self._budget is not None:
            self._budget.settle(rank, self._totals.of(rank))
