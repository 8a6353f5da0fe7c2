"""Writes TensorBoard's event files by tensorboard's own writer: accuracy and loss by samples, the rest by time.

`pip install tensorboard` is enough; TensorFlow is not needed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from paceline.core.errors import ConfigError
from paceline.core.trace import Applied, Evaluated, Record, Span

BIN_S = 1.0
"""Seconds of which one point is made."""
WORKERS_MAX = 32
"""Workers up to which each has curves of its own."""
Point = tuple[str, float, int, float]
"""Tag, value, step and seconds since the start."""


def write(folder: Path, records: Iterable[Record], begun_at: float) -> int:
    """Writes the points and returns how many there are. `begun_at`: the wall clock at the start, in seconds since 1970.

    Raises ConfigError without tensorboard.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        raise ConfigError("--to tensorboard: tensorboard is not installed; pip install tensorboard") from None
    writer: Any = EventFileWriter(str(folder))
    found = list(points(records))
    for tag, value, step, at in found:
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
        writer.add_event(Event(wall_time=begun_at + at, step=step, summary=summary))
    writer.close()
    return len(found)


def points(records: Iterable[Record]) -> Iterator[Point]:
    """Yields evaluations by samples; throughput, shares of time and staleness by the end of each bin, in
    milliseconds."""
    bins: dict[int, _Bin] = defaultdict(_Bin)
    for record in records:
        match record:
            case Evaluated():
                yield "test/accuracy", record.accuracy, record.samples, record.at
                if math.isfinite(record.loss):
                    yield "test/loss", record.loss, record.samples, record.at
            case Span():
                bins[int(record.at / BIN_S)].span(record)
            case Applied(shard=0):
                bins[int(record.at / BIN_S)].late += [record.staleness] * len(record.ranks)
    for number, bin_ in sorted(bins.items()):
        end = (number + 1) * BIN_S
        yield from ((tag, value, round(1000 * end), end) for tag, value in bin_.values())


class _Bin:
    """Sums up what ended in one stretch of BIN_S seconds."""

    def __init__(self) -> None:
        self.samples = 0
        self.late: list[int] = []
        self._seconds: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    def span(self, span: Span) -> None:
        """Adds what a worker did."""
        self.samples += span.samples
        self._seconds[span.rank][span.activity] += span.seconds

    def values(self) -> Iterator[tuple[str, float]]:
        """Yields names and values of one bin of time: speed, staleness, and shares of each worker's time.

        With more than WORKERS_MAX workers their shares are left out: nobody reads so many curves.
        """
        yield "train/samples_per_second", self.samples / BIN_S
        if self.late:
            yield "train/staleness", sum(self.late) / len(self.late)
        if len(self._seconds) > WORKERS_MAX:
            return
        for rank, seconds in sorted(self._seconds.items()):
            for activity, part in seconds.items():
                yield f"worker {rank}/{activity}", part / (sum(seconds.values()) or 1.0)
