"""Runs that never were, for the tests of what shows them."""

from __future__ import annotations

import math
from typing import Any

from paceline.core.trace import Evaluated
from paceline.observe.runs.summary import Summary, WorkerSummary
from paceline.observe.terminal.progress import ProgressSnapshot, WorkerRow


def worker(rank: int, waiting: float = 0.3, **changed: Any) -> WorkerSummary:
    fields: dict[str, Any] = {
        "rank": rank,
        "device": "cpu",
        "slowdown": 1.0,
        "steps": 100,
        "exchanges": 100,
        "samples": 3200,
        "seconds_computing": 10 * (0.9 - waiting),
        "seconds_waiting": 10 * waiting,
        "seconds_communicating": 1.0,
    }
    return WorkerSummary(**fields | changed)


def summary(scheme: str = "bsp", workers: int = 4, waiting: float = 0.3, **changed: Any) -> Summary:
    fields: dict[str, Any] = {
        "scheme": scheme,
        "driver": "live",
        "seed": 0,
        "reason": "target reached",
        "seconds": 10.0,
        "samples": 10_000,
        "samples_per_second": 1000.0,
        "test_accuracy": 0.91,
        "target_accuracy": 0.9,
        "seconds_to_target": 10.0,
        "bytes_up": 12_000_000,
        "bytes_down": 34_000_000,
        "workers": tuple(worker(rank, waiting) for rank in range(workers)),
        "model": "mlp",
        "data": "digits",
        "servers": 1,
        "step_ms": 10.0,
        "learning_rate": 0.05,
    }
    return Summary(**fields | changed)


def evaluations(seconds: float = 10.0, count: int = 11, top: float = 0.95) -> list[Evaluated]:
    times = [seconds * i / (count - 1) for i in range(count)]
    return [
        Evaluated(
            at=at, accuracy=top * (1 - math.exp(-4 * at / seconds)), loss=1.0, samples=int(at * 1000), seconds=0.01
        )
        for at in times
    ]


def row(rank: int, **changed: Any) -> WorkerRow:
    fields: dict[str, Any] = {
        "rank": rank,
        "device": "cuda:0",
        "slowdown": 1.0 + rank % 4,
        "steps": 12_345 // (rank + 1),
        "samples_per_second": 1500 / (rank + 1),
        "computing": 0.6,
        "waiting": 0.31,
        "communicating": 0.09,
        "staleness_mean": 1.2,
        "staleness_max": 7,
        "state": "waiting",
    }
    return WorkerRow(**fields | changed)


def snapshot(count: int = 4, **changed: Any) -> ProgressSnapshot:
    fields: dict[str, Any] = {
        "scheme": "esync",
        "elapsed_s": 12.0,
        "samples": 18_240,
        "epochs": 3.1,
        "workers": tuple(row(rank) for rank in range(count)),
        "accuracy": 0.801,
        "target": 0.9,
        "fraction_done": 0.45,
        "seconds_left": 14.2,
    }
    return ProgressSnapshot(**fields | changed)
