"""What each virtual worker has done, read off the trace as it is written."""

from __future__ import annotations

from collections.abc import Callable

from paceline.core.trace import Applied, Record, Span


class Meter:
    """This counts for one worker. `steps` and `samples` are those of finished work; times in seconds."""

    __slots__ = ("communicating", "computing", "samples", "steps", "waiting")

    def __init__(self) -> None:
        self.steps = self.samples = 0
        self.computing = self.communicating = self.waiting = 0.0


class Meters:
    """These are the counters of all workers.

    `total`: samples of all of them; `dropped`: of these, what a server threw away. `on_steps` hears of each worker's
    steps as they are done.
    """

    def __init__(self, workers: int) -> None:
        self.of = [Meter() for _ in range(workers)]
        self.total = self.dropped = 0
        self.on_steps: Callable[[int, int], None] | None = None

    def record(self, record: Record) -> None:
        if isinstance(record, Applied) and record.shard == 0 and record.weight == 0:
            self.dropped += record.samples
        if not isinstance(record, Span):
            return
        meter = self.of[record.rank]
        if record.activity == "computing":
            meter.computing += record.seconds
            meter.steps += record.steps
            meter.samples += record.samples
            self.total += record.samples
            if self.on_steps is not None:
                self.on_steps(record.rank, meter.steps)
        elif record.activity == "waiting":
            meter.waiting += record.seconds
        else:
            meter.communicating += record.seconds
