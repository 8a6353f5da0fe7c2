"""Describes one run in a few numbers: `summary.json`, by which tables and figures compare runs."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from paceline.core.errors import PacelineError
from paceline.core.files.regular_file import read_regular
from paceline.core.trace import Applied, Decided, Evaluated, Gated, Leased, Record

SUMMARY = "summary.json"
"""The file with the summary, in a run's folder."""
IMPORTED = "ESync"
"""The driver of runs that are read from ESync's logs: their bytes are computed, not measured."""
FAILED = "failed"  # how the reason of a run begins that did not come to its end


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeShares:
    """Says where the time of one worker, or of several together, went; each share is between 0 and 1."""

    computing: float
    communicating: float
    waiting: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSummary:
    """Summarises one worker, over all its incarnations.

    slowdown        how many times slower it was made
    staleness_*     in versions; None where nothing is ever stale
    seconds_hidden  of communication while it computed, besides `seconds_communicating`
    refused         contributions of which nothing was used, or not all; found by a server, or by the worker itself
    wild            contributions that were noted and used (docs/numbers.md)
    incarnations    how often it was started
    host            where it ran, if that is known
    overlap         whether its steps overlap, and what it has measured; "" where that was not measured
    """

    rank: int
    device: str
    slowdown: float
    steps: int
    exchanges: int
    samples: int
    seconds_computing: float
    seconds_waiting: float
    seconds_communicating: float
    staleness_mean: float | None = None
    staleness_max: int | None = None
    seconds_hidden: float = 0.0
    refused: int = 0
    wild: int = 0
    incarnations: int = 1
    host: str = ""
    overlap: str = ""

    @property
    def shares(self) -> TimeShares:
        """Returns the shares of its time."""
        return shares_of((self,))

    @property
    def hidden(self) -> float | None:
        """Returns the share of its communication that it did not wait for; None where none was hidden."""
        return hidden_share((self,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Describes a change of membership, `at` seconds after the start: `event` is lost, returned, drained or expelled.

    `steps`: how many the worker had made.
    """

    at: float
    party: str
    event: str
    reason: str
    steps: int


CHANGES = ("lost", "returned", "drained", "expelled")
"""Changes of membership that a summary counts, by worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Summarises one run.

    driver            live, sim, or IMPORTED
    reason            why it ended; begins with `failed` for a run that did not come to its end
    test_accuracy     None without evaluations; test_loss: that of the last one
    target_loss       the test loss at which the run was to stop; None where none was set
    goodput           share of the workers' capacity that is in the model (`observe/runs/goodput.py`)
    dropped           of `samples`, those of contributions that servers dropped: too late, rejected or discarded. Each
                      server decides for its slice: a sample counts by the part of the model that has dropped it
    perplexity        exp(test_loss) of a language model; None for others
    seconds_to_target None when the target was missed or never set
    step_ms           the step of a worker with slowdown 1, where it was emulated
    bytes_up          what workers sent; bytes_down: received; bytes_shared: of both, by shared memory
    transport         how vectors travelled, if any did live
    model, data       names; of a script its file, and ""
    model_length      parameters of the model, 0 where nobody knows
    faults            who was lost, drained or came back during training
    views             generations of membership, the first among them
    leased            what became of leased samples; None where data was divided beforehand
    warning           what is wrong with a model that does no better than guessing, and the way out
    """

    scheme: str
    driver: str
    seed: int
    reason: str
    seconds: float
    samples: int
    samples_per_second: float
    test_accuracy: float | None
    target_accuracy: float | None
    seconds_to_target: float | None
    bytes_up: int
    bytes_down: int
    workers: tuple[WorkerSummary, ...]
    model: str
    data: str
    servers: int
    step_ms: float | None
    learning_rate: float
    parameters: dict[str, Any] = field(default_factory=dict)
    model_length: int = 0
    bytes_shared: int = 0
    transport: str = ""
    faults: tuple[Change, ...] = ()
    views: int = 1
    test_loss: float | None = None
    leased: Leased | None = None
    warning: str = ""
    target_loss: float | None = None
    perplexity: float | None = None
    goodput: float | None = None
    dropped: int = 0

    @property
    def target(self) -> str | None:
        """Returns what was to be reached, as sentences name it: `0.9`, or `loss 2.5`; None without a target."""
        if self.target_accuracy is not None:
            return f"{self.target_accuracy:g}"
        return None if self.target_loss is None else f"loss {self.target_loss:g}"

    @property
    def task(self) -> str:
        """Returns what was trained: `mlp on digits`, or the file of a script."""
        return f"{self.model} on {self.data}" if self.data else self.model

    @property
    def shares(self) -> TimeShares:
        """Returns the shares of all workers together."""
        return shares_of(self.workers)

    @property
    def hidden(self) -> float | None:
        """Returns the share of their communication that the workers did not wait for; None where none was hidden."""
        return hidden_share(self.workers)

    @property
    def staleness_mean(self) -> float | None:
        """Returns the mean staleness over all contributions that had one, with exchanges as their number; None without
        any."""
        stale = [(w.staleness_mean, max(1, w.exchanges)) for w in self.workers if w.staleness_mean is not None]
        return sum(mean * count for mean, count in stale) / sum(count for _, count in stale) if stale else None

    def to_json(self) -> str:
        """Returns the summary as JSON, which `from_json` reads."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Returns the summary of a text. Raises ValueError, KeyError or TypeError for any other text."""
        fields = json.loads(text)
        fields["workers"] = tuple(WorkerSummary(**worker) for worker in fields["workers"])
        fields["leased"] = Leased(**leased) if (leased := fields.get("leased")) else None
        fields["faults"] = tuple(Change(**change) for change in fields.get("faults", ()))
        return cls(**fields)


def overlap_of(record: Decided) -> str:
    """Returns the decision of a worker that has measured steps with overlap and without, with its reason."""
    return f"{record.verdict}: {record.reason}"


def shares_of(workers: Iterable[WorkerSummary]) -> TimeShares:
    """Returns the shares of these workers' time together; all are zero when no time was recorded."""
    workers = tuple(workers)
    computing = sum(w.seconds_computing for w in workers)
    communicating = sum(w.seconds_communicating for w in workers)
    waiting = sum(w.seconds_waiting for w in workers)
    total = computing + communicating + waiting or 1.0
    return TimeShares(computing=computing / total, communicating=communicating / total, waiting=waiting / total)


def hidden_share(workers: Iterable[WorkerSummary]) -> float | None:
    """Returns the hidden part of the seconds in which bytes moved; None where none was hidden."""
    workers = tuple(workers)
    hidden = sum(w.seconds_hidden for w in workers)
    return hidden / (hidden + sum(w.seconds_communicating for w in workers)) if hidden else None


def write_summary(summary: Summary, path: str | os.PathLike[str]) -> None:
    """Writes a summary, all or nothing: a reader sees the old file or the new one. Raises OSError."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(summary.to_json(), encoding="utf-8")
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def read_summary(path: str | os.PathLike[str]) -> Summary:
    """Returns the summary at `path`. Raises PacelineError when there is none, or none of this version."""
    try:
        return Summary.from_json(read_regular(path))
    except OSError as error:
        raise PacelineError(f"{path}: the summary cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise PacelineError(f"{path}: not a summary of this version of paceline ({error})") from error


TARGET_LOSS = "target loss"
"""The reason of a run that ended because the test loss was low enough."""


def seconds_to_target(
    evaluations: Iterable[Evaluated], target: float | None, target_loss: float | None = None
) -> float | None:
    """Returns when the accuracy first was `target` or better, or else the loss `target_loss` or lower; None when it
    never was. `evaluations` by time.
    """
    if target is not None:
        return next((e.at for e in evaluations if e.accuracy >= target), None)
    if target_loss is None:
        return None
    return next((e.at for e in evaluations if 0 < e.loss <= target_loss), None)


def perplexity_of(loss: float | None) -> float | None:
    """Returns exp(loss), of a mean loss a token in nats; None where that is no number."""
    return math.exp(loss) if loss is not None and loss < LOSS_MAX else None


LOSS_MAX = 700.0
"""The exponential of more is no float."""


NUMBERS_KEPT = 1024
"""Contributions of a rank with which something was wrong whose numbers are kept: servers are never so far apart."""


class Faults:
    """Counts the contributions of each rank that servers found fault with; one that several shards report counts
    once."""

    def __init__(self) -> None:
        self._count: Counter[tuple[int, bool]] = Counter()
        self._latest: dict[tuple[int, bool], dict[int, None]] = {}  # numbers, in the order in which they came

    def add(self, record: Record) -> None:
        """Counts a record; only `Gated` ones matter."""
        if not isinstance(record, Gated):
            return
        sort = record.rank, record.refused
        latest = self._latest.setdefault(sort, {})
        if record.number in latest:
            return
        self._count[sort] += 1
        latest[record.number] = None
        if len(latest) > NUMBERS_KEPT:
            del latest[next(iter(latest))]

    def refused(self, rank: int) -> int:
        """Returns the contributions of `rank` that were rejected."""
        return self._count[rank, True]

    def wild(self, rank: int) -> int:
        """Returns the contributions of `rank` that were noted and used."""
        return self._count[rank, False]


class Staleness:
    """Computes mean and largest staleness of every rank, one record at a time.

    It reads the `Applied` records of shard 0 only: every contribution goes to every shard, and once each is enough.
    A contribution dropped for being late counts too, since its lateness is what one wants to see.
    """

    def __init__(self) -> None:
        self._count: dict[int, int] = {}
        self._sum: dict[int, int] = {}
        self._max: dict[int, int] = {}

    def add(self, record: Record) -> None:
        """Takes a record; only updates of shard 0 count, as each worker sends to every shard."""
        if not isinstance(record, Applied) or record.shard != 0:
            return
        for rank in record.ranks:
            self._count[rank] = self._count.get(rank, 0) + 1
            self._sum[rank] = self._sum.get(rank, 0) + record.staleness
            self._max[rank] = max(self._max.get(rank, 0), record.staleness)

    def mean(self, rank: int) -> float | None:
        """Returns the mean staleness of a worker's contributions, in versions; None where it has none."""
        count = self._count.get(rank)
        return self._sum[rank] / count if count else None

    def max(self, rank: int) -> int | None:
        """Returns the largest staleness of a worker's contributions; None where it has none."""
        return self._max.get(rank)
