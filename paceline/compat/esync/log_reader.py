"""Reads the logs of ESync (github.com/Lizonghang/ESync) as runs: `<node>/<device>/iter-N.txt`, one file a round, from
1.

A folder `<network>/<mode>/` also tells the size of the model. The bytes are then computed, as in ESync's own figure:
each exchange of a worker sends the model once, and receives it once.

A file holds one object: `time`, the seconds of each local step by phase, and at last of the exchange; `num_samples` of
the round; `total_time` since the worker began; `accuracy`, if it was evaluated. What those logs do not tell stays
unknown: losses, staleness, and how much of an exchange was waiting. So all of an exchange counts as
communicating. The clocks of the workers are assumed to have begun together.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from paceline.compat.esync.networks import BYTES_A_PARAMETER, NETWORKS
from paceline.core.errors import PacelineError
from paceline.core.trace import Evaluated, Record, Span
from paceline.observe.runs.run_folders import RunFolder
from paceline.observe.runs.summary import IMPORTED, Summary, WorkerSummary

SCHEMES = {"esync": "esync", "sync": "bsp", "async": "asp", "dcasgd": "dcasgd"}
"""ESync's modes, which are also names of folders, and the schemes of this package that they are."""
BY_CLASS = "-niid"
FIRST = "iter-1.txt"
EXCHANGE = ("global update", "global aggregate")
STEP = ("check ready", "get_batch", "forward and backward", "local update")


@dataclass(frozen=True, slots=True)
class LoggedRound:
    """Holds what one file says: seconds computing and exchanging; `at`: seconds since the worker began."""

    at: float
    computing: float
    exchanging: float
    steps: int
    samples: int
    accuracy: float | None


def esync_run(path: Path) -> RunFolder | None:
    """Returns the run whose workers' logs lie in or under `path`; None where there are none.

    Raises PacelineError for a file that is no such log.
    """
    if any((path / f"{mode}{end}").is_dir() for mode in SCHEMES for end in ("", BY_CLASS)):
        return None  # several runs: one a mode
    folders = sorted({file.parent for pattern in ("", "*/", "*/*/") for file in path.glob(pattern + FIRST)})
    if not folders:
        return None
    mode = path.resolve().name
    workers = [(str(folder.relative_to(path)), list(_rounds(folder))) for folder in folders]
    scheme, network = SCHEMES.get(mode.removesuffix(BY_CLASS), mode), path.resolve().parent.name
    summary = _summary(scheme, network, workers)
    facts = {"data.partition": "class"} if mode.endswith(BY_CLASS) else {}
    return RunFolder(
        path=path, summary=summary, facts=facts, records=lambda: _records([rounds for _, rounds in workers])
    )


def _rounds(folder: Path) -> Iterator[LoggedRound]:
    """Yields the rounds of one worker, up to the first gap in the numbers."""
    for number in count(1):
        path = folder / f"iter-{number}.txt"
        try:
            yield _round(json.loads(path.read_text("utf-8")))
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise PacelineError(f"{path}: not a log of ESync ({error})") from error


def _round(log: dict[str, Any]) -> LoggedRound:
    """Returns what one file says. Raises KeyError, TypeError, ValueError or AttributeError for another kind of file."""
    phases = list(log["time"].values())
    return LoggedRound(
        at=float(log["total_time"]),
        computing=sum(float(phase.get(name, 0)) for phase in phases for name in STEP),
        exchanging=sum(float(phase.get(name, 0)) for phase in phases for name in EXCHANGE),
        # The last entry of an esync round is the exchange, which is no step.
        steps=sum("forward and backward" in phase for phase in phases),
        samples=int(log["num_samples"]),
        accuracy=float(log["accuracy"]) if "accuracy" in log else None,
    )


def _summary(scheme: str, network: str, workers: Sequence[tuple[str, Sequence[LoggedRound]]]) -> Summary:
    """Returns the summary of the run; what the logs do not tell has the value for unknown."""
    known = NETWORKS.get(network)
    sent = BYTES_A_PARAMETER * known.parameters * sum(len(rounds) for _, rounds in workers) if known else 0
    seconds = max(rounds[-1].at for _, rounds in workers)
    accuracies = [e.accuracy for e in _evaluations([rounds for _, rounds in workers])]
    samples = sum(r.samples for _, rounds in workers for r in rounds)
    return Summary(
        scheme=scheme,
        driver=IMPORTED,
        seed=0,
        reason="end of the log",
        seconds=seconds,
        samples=samples,
        samples_per_second=samples / seconds if seconds else 0.0,
        test_accuracy=accuracies[-1] if accuracies else None,
        target_accuracy=None,
        seconds_to_target=None,
        bytes_up=sent,
        bytes_down=sent,
        workers=tuple(_worker(rank, device, rounds) for rank, (device, rounds) in enumerate(workers)),
        model=network if known else "unknown",
        data="unknown",
        servers=1,
        step_ms=None,
        learning_rate=0.0,
    )


def _worker(rank: int, device: str, rounds: Sequence[LoggedRound]) -> WorkerSummary:
    return WorkerSummary(
        rank=rank,
        device=device,
        slowdown=1.0,
        steps=sum(r.steps for r in rounds),
        exchanges=len(rounds),
        samples=sum(r.samples for r in rounds),
        seconds_computing=sum(r.computing for r in rounds),
        seconds_waiting=0.0,
        seconds_communicating=sum(r.exchanging for r in rounds),
    )


def _records(workers: Sequence[Sequence[LoggedRound]]) -> list[Record]:
    """Returns the trace records of the run in the order of time."""
    records: list[Record] = list(_evaluations(workers))
    for rank, rounds in enumerate(workers):
        for r in rounds:
            begun = r.at - r.exchanging
            records += [
                Span(at=begun, rank=rank, activity="computing", seconds=r.computing, steps=r.steps, samples=r.samples),
                Span(at=r.at, rank=rank, activity="communicating", seconds=r.exchanging, exchanges=1),
            ]
    return sorted(records, key=lambda record: record.at)


def _evaluations(workers: Sequence[Sequence[LoggedRound]]) -> list[Evaluated]:
    """Returns the evaluations of the worker that evaluated most often: the others evaluated the same model, or one like
    it.
    """
    judge = max(workers, key=lambda rounds: sum(r.accuracy is not None for r in rounds))
    return [
        Evaluated(
            at=r.at,
            accuracy=r.accuracy,
            loss=math.nan,
            samples=sum(other.samples for rounds in workers for other in rounds if other.at <= r.at),
            seconds=0.0,
        )
        for r in judge
        if r.accuracy is not None
    ]
