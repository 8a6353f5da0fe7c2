"""Counts what each virtual worker has done, from the records of the trace as they are written."""

from __future__ import annotations

from collections.abc import Callable

from paceline.core.trace import LostWork, Record, Span


class Meter:
    """Counts for one worker. `steps` and `samples` are those of finished work; times are in virtual seconds."""

    __slots__ = ("communicating", "computing", "samples", "steps", "waiting")

    def __init__(self) -> None:
        self.steps = self.samples = 0
        self.computing = self.communicating = self.waiting = 0.0


class Meters:
    """Holds the counters of all workers.

    total     samples of all of them
    on_steps  is called with rank and steps of a worker when a step is done
    """

    def __init__(self, workers: int) -> None:
        self.of = [Meter() for _ in range(workers)]
        self.total = 0
        self.on_steps: Callable[[int, int], None] | None = None

    def record(self, record: Record) -> None:
        """Counts a record."""
        if isinstance(record, LostWork):
            meter = self.of[record.rank]
            meter.steps, meter.samples = meter.steps - record.steps, meter.samples - record.samples
            self.total -= record.samples
            return
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
