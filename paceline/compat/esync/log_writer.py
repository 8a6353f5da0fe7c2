"""Writes a run as the logs of ESync's workers: `<folder>/<device>/iter-N.txt`, one file a round, from 1.

`log_reader.py` has the format. A round of a worker ends with its exchange. Times that are not measured apart here are
in the phase that contains them: fetching the batch and the local update in `forward and backward`, waiting for the
others in `global update`. A device that several workers have is followed by the rank: `cpu`, `cpu-1`, `cpu-2`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.core.trace import Evaluated, Span
from paceline.observe.runs.run_folders import RunFolder

DIGITS = 4
"""Decimal places of the seconds in a log."""


@dataclass(slots=True)
class WorkerRound:
    """Holds one round of a worker: the seconds of each local step, and what the exchange took."""

    steps: list[float] = field(default_factory=list)
    samples: int = 0
    exchanging: float = 0.0
    until: float = 0.0


def write(run: RunFolder, folder: Path) -> int:
    """Writes the logs of all workers; returns the number of files. Logs of an earlier run there are removed, as ESync
    removes them. Raises OSError.
    """
    records = [r for r in run.records() if isinstance(r, Span | Evaluated)]
    evaluations = sorted((r for r in records if isinstance(r, Evaluated)), key=lambda e: e.at)
    local = run.summary.scheme == "esync"
    written, used = 0, set[str]()
    for worker in run.summary.workers:
        name = "cpu" if worker.device == "cpu" else f"gpu{worker.device.partition(':')[2] or 0}"
        name = f"{name}-{worker.rank}" if name in used else name
        used.add(name)
        rounds = list(_rounds(r for r in records if isinstance(r, Span) and r.rank == worker.rank))
        judged = list(_judged(rounds, evaluations)) if worker.rank == 0 else [None] * len(rounds)
        _empty(folder / name)
        for number, (each, accuracy) in enumerate(zip(rounds, judged, strict=True), 1):
            text = json.dumps(_log(number, each, accuracy, local=local))
            (folder / name / f"iter-{number}.txt").write_text(text, "utf-8")
        written += len(rounds)
    return written


def _empty(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("iter-*.txt"):
        old.unlink()


def _rounds(spans: Iterable[Span]) -> Iterator[WorkerRound]:
    """Yields the rounds of one worker. A step says whether an exchange took place before it."""
    this = WorkerRound()
    for span in spans:
        if span.activity == "computing":
            if span.exchanges and this.steps:
                yield this
                this = WorkerRound()
            this.steps += [span.seconds / max(1, span.steps)] * span.steps
            this.samples += span.samples
        elif this.steps:  # before the first step there is nothing to exchange
            this.exchanging += span.seconds
        this.until = max(this.until, span.at)
    if this.steps:
        yield this


def _judged(rounds: Sequence[WorkerRound], evaluations: Sequence[Evaluated]) -> Iterator[Evaluated | None]:
    """Yields, for each round, the newest evaluation that became known in it."""
    left = list(evaluations)
    for number, each in enumerate(rounds, 1):
        known = None
        while left and (left[0].at <= each.until or number == len(rounds)):
            known = left.pop(0)
        yield known


def _log(number: int, each: WorkerRound, judged: Evaluated | None, *, local: bool) -> dict[str, Any]:
    """Returns the contents of one file; `local`: with an entry for each step, as in mode `esync`."""
    evaluation = {"evaluation": round(judged.seconds, DIGITS)} if judged else {}
    steps = [{"get_batch": 0.0, "forward and backward": round(seconds, DIGITS)} for seconds in each.steps]
    if local:
        entries = [{"check ready": 0.0, **step, "local update": 0.0} for step in steps]
        entries.append({"check ready": 0.0, "global update": round(each.exchanging, DIGITS), **evaluation})
    else:
        total = round(sum(each.steps), DIGITS)
        exchange = {"global aggregate": round(each.exchanging, DIGITS), **evaluation}
        entries = [{"get_batch": 0.0, "forward and backward": total, **exchange}]
    return {
        "num_iters": number,
        "time": {str(place): entry for place, entry in enumerate(entries)},
        "num_samples": each.samples,
        "total_time": round(each.until, DIGITS),
        **({"accuracy": judged.accuracy} if judged and judged.accuracy else {}),
    }
