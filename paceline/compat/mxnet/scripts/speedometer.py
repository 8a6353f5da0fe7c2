"""Writes a run as the log of MXNet's training scripts, which `tools/parse_log.py` reads.

    2026-11-25 12:00:07,250 Node[1] Epoch[0] Batch [20-40]	Speed: 1910.41 samples/sec
    2026-11-25 12:00:09,100 Node[0] Epoch[0] Time cost=12.345
    2026-11-25 12:00:09,100 Node[0] Epoch[0] Validation-accuracy=0.610000

The speed is that of one worker, between two lines of its own. Node is its rank; one file has the lines of all. An epoch
ends when all workers together have trained it, and has its last evaluation, under node 0. There is no training
accuracy, since a run does not measure it. (python/mxnet/callback.py: Speedometer; module/base_module.py: fit)
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TextIO

from paceline.core.trace import Evaluated, Span
from paceline.observe.runs.run_folders import RunFolder

BATCHES = 20
"""Batches between two lines of a worker: the scripts' own `--disp-batches`."""


@dataclass(slots=True)
class _Meter:
    """Holds what a worker has done: batches of this epoch, and samples since its last line, at the moment `since`."""

    batches: int = 0
    told: int = 0
    samples: int = 0
    since: float = 0.0


def write(out: TextIO, run: RunFolder, begun_at: float, every: int = BATCHES) -> int:
    """Writes the lines of a run that began at `begun_at`, in seconds since 1970; returns how many.

    The length of an epoch is known where epochs end the run; otherwise all is epoch 0.
    """
    epochs = float(run.facts.get("stop.epochs", 0) or 0)
    length = run.summary.samples / epochs if epochs and run.summary.reason == "epochs" else math.inf
    judged = {max(0, math.ceil(r.samples / length) - 1): r for r in run.records() if isinstance(r, Evaluated)}
    spans = (record for record in run.records() if isinstance(record, Span) and record.steps)
    lines = 0
    for at, text in _lines(spans, judged, length, every):
        moment = begun_at + at
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))
        out.write(f"{stamp},{int(moment % 1 * 1000):03d} {text}\n")
        lines += 1
    return lines


def _lines(
    spans: Iterable[Span], judged: Mapping[int, Evaluated], length: float, every: int
) -> Iterator[tuple[float, str]]:
    """Yields moments and lines. judged: the last evaluation of each epoch. length: samples of an epoch. every: batches
    between two lines of a worker."""
    meters: dict[int, _Meter] = {}
    epoch, samples, began, at = 0, 0, 0.0, 0.0
    for span in spans:
        at = max(at, span.at)
        meter = meters.setdefault(span.rank, _Meter())
        meter.batches += span.steps
        meter.samples += span.samples
        samples += span.samples
        if meter.batches - meter.told >= every:
            yield at, _speed(span.rank, epoch, meter, at)
        if samples >= (epoch + 1) * length:
            yield from _end(epoch, at, at - began, judged.get(epoch))
            epoch, began = int(samples // length), at
            for each in meters.values():
                each.batches = each.told = 0
    if began < at:
        yield from _end(epoch, at, at - began, judged.get(epoch))


def _speed(rank: int, epoch: int, meter: _Meter, at: float) -> str:
    """Returns a worker's line, and begins its next one."""
    speed = meter.samples / max(at - meter.since, 1e-9)
    line = f"Node[{rank}] Epoch[{epoch}] Batch [{meter.told}-{meter.batches}]\tSpeed: {speed:.2f} samples/sec"
    meter.told, meter.samples, meter.since = meter.batches, 0, at
    return line


def _end(epoch: int, at: float, seconds: float, judged: Evaluated | None) -> Iterator[tuple[float, str]]:
    """Yields the lines at the end of an epoch."""
    yield at, f"Node[0] Epoch[{epoch}] Time cost={seconds:.3f}"
    if judged:
        yield at, f"Node[0] Epoch[{epoch}] Validation-accuracy={judged.accuracy:f}"
