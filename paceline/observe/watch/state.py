"""Gathers what is known of a run, record by record. It uses no files and no clocks; parties may be heard in any order.

The trace of a run in which one worker computes 60 ms of every 80, and waits for the rest:

    state = PageState(workers=1)
    for record in read_trace("trace.jsonl"):
        state.add(record)
    state.workers[0].shares()             # (0.75, 0.0, 0.25)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from paceline.core.trace import (
    OPERATOR,
    Applied,
    Decided,
    Evaluated,
    Gated,
    LinkTraffic,
    MemberChange,
    Record,
    ResourceUse,
    Span,
    rate_factor,
)
from paceline.observe.runs.collapse import collapse
from paceline.observe.runs.goodput import Goodput
from paceline.observe.trace.trace_file import is_timed
from paceline.observe.watch.evaluations import Evaluations
from paceline.observe.watch.resource_rates import Resources
from paceline.observe.watch.time_bins import TimeBins
from paceline.observe.watch.waits.bottleneck import LATER, ServerLags
from paceline.observe.watch.waits.verdict import WaitVerdict
from paceline.observe.watch.waits.who_waits import WhoWaits
from paceline.observe.watch.waits.worker_rates import ACTIVITIES, WorkerRates

STRIP_S = 120.0
"""Seconds of the strips that show what each worker was at, at least."""
STEPS_SHOWN = 30
"""A strip spans two minutes (STRIP_S), or so many steps of the slowest worker."""
EVENTS_KEPT = 200
"""Events of the list that the page shows; older ones are dropped."""


@dataclass(slots=True)
class ShardState:
    """Describes a server's shard by what it applied: its version, and sums over all updates.

    lost_at: when the server was lost, until another one has taken its place.
    """

    version: int = 0
    updates: int = 0
    contributions: int = 0
    dropped: int = 0
    staleness: int = 0
    host: str = ""
    lost_at: float | None = None  # until another one has taken its place


@dataclass(slots=True)
class Lateness:
    """Measures the staleness of one worker's contributions: a mean that forgets, and the largest."""

    mean: float = 0.0
    largest: int = 0

    def add(self, staleness: int) -> None:
        """Takes the staleness of one update, in versions; the mean forgets with a factor of 0.9 an update."""
        self.mean += 0.1 * (staleness - self.mean)
        self.largest = max(self.largest, staleness)


class PageState:
    """Holds the state of a run. `now`: the latest time of any record."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self.reset()

    def reset(self) -> None:
        """Forgets everything: another run begins in the same file."""
        self.now = 0.0
        self.records = 0
        self.waits = WhoWaits(self._workers)
        self.strips = TimeBins(len(ACTIVITIES), STRIP_S)
        self.rates = TimeBins(1)
        self.strips.need(self._workers)
        self.rates.need(1)
        self.shards: dict[int, ShardState] = {}
        self.updates = TimeBins(1, STRIP_S)
        self.lags = ServerLags()
        self._goodput = Goodput()
        self.lateness: dict[int, Lateness] = {}
        self._met: dict[int, tuple[int, ...]] = {}  # by rank: whose contributions made an update with its latest
        self.evaluations = Evaluations()
        self.resources = Resources()
        self.rate_factor = 1.0  # of the operator, on the learning rate
        self.events: deque[Decided | MemberChange | Gated] = deque(maxlen=EVENTS_KEPT)
        self.event_count = 0

    def add_all(self, records: Iterable[Record]) -> None:
        """Takes records, of different parties in any order."""
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        """Adds a record. One whose time or length is not finite belongs to no moment, and is left out."""
        if not is_timed(record):
            return
        if isinstance(record, MemberChange) and record.event == "joined" and self.ended:
            self.reset()
        if isinstance(record, MemberChange) and self.ended:
            return  # everybody leaves when the run is over; the page shows those who trained to the end
        self.waits.add(record)
        match record:
            case MemberChange():
                self._member(record)
            case Span():
                self._span(record)
            case Applied():
                self._applied(record)
            case Decided():
                self._decision(record)
            case Gated(refused=True):
                self._event(record)
            case Evaluated():
                self.evaluations.add(record)
            case ResourceUse() | LinkTraffic():
                self.resources.add(record)
        self._goodput.add(record)
        self.records += 1
        self.now = max(self.now, record.at)

    # ---- each kind ---------------------------------------------------------------------------------------
    def _span(self, span: Span) -> None:
        """Takes what a worker did."""
        if span.activity not in ACTIVITIES:
            return
        begin = span.at - span.seconds
        self.strips.add(span.rank, ACTIVITIES.index(span.activity), begin, span.at, span.seconds)
        if span.activity == "computing":
            self.rates.add(0, 0, begin, span.at, span.samples)
            self.strips.span_s = max(self.strips.span_s, STEPS_SHOWN * self.workers[span.rank].step_s)

    def _applied(self, update: Applied) -> None:
        """Takes an update of a shard, or contributions that it dropped."""
        shard = self.shards.setdefault(update.shard, ShardState())
        if update.weight > 0:
            shard.version = max(shard.version, update.version)
            shard.updates += 1
            shard.contributions += len(update.ranks)
            shard.staleness += update.staleness * len(update.ranks)
            self.updates.add(update.shard, 0, update.at, update.at, 1)
            self.lags.add(update.shard, update.version, update.at)
        else:
            shard.dropped += len(update.ranks)
        if update.shard == 0:
            met = tuple(sorted(update.ranks))
            for rank in met:
                self._met[rank] = met
                self.lateness.setdefault(rank, Lateness()).add(update.staleness)

    def _decision(self, decision: Decided) -> None:
        """Takes a decision of a scheme. Waits are no events: there are as many as steps."""
        if decision.party == OPERATOR and (factor := rate_factor(decision.reason)) is not None:
            self.rate_factor = factor
        if decision.verdict != "wait":
            self._event(decision)

    def _event(self, record: Decided | MemberChange | Gated) -> None:
        """Adds a record to the list of events that the page shows."""
        self.events.append(record)
        self.event_count += 1

    def _member(self, record: MemberChange) -> None:
        """Takes a change of membership; those that join before training begins are no events."""
        kind, _, number = record.party.rpartition(" ")
        if kind == "server":
            shard = self.shards.setdefault(int(number), ShardState())
            shard.host = record.host or shard.host
            shard.lost_at = record.at if record.event == "lost" else None
        if record.event != "joined" or record.at > 0:
            self._event(record)

    # ---- what follows from them --------------------------------------------------------------------------
    @property
    def workers(self) -> list[WorkerRates]:
        """Returns the workers, by rank."""
        return self.waits.workers

    @property
    def ended(self) -> str:
        """Returns why the run is over; "" while it goes on."""
        return self.waits.ended

    @property
    def verdict(self) -> WaitVerdict:
        """Returns what the workers wait for."""
        return self.waits.verdict

    @property
    def samples(self) -> int:
        """Returns the samples that all workers have trained."""
        return sum(worker.samples for worker in self.workers)

    @property
    def goodput(self) -> float | None:
        """Returns the share of the workers' capacity so far that is in the model; None while there is none."""
        return self._goodput.share(len(self.workers), self.now)

    def standing(self, rank: int) -> str:
        """Returns what worker `rank` is most likely at now: what follows on what it reported last."""
        if self.waits.wait(rank):
            return "waiting"
        last = self.workers[rank].last_activity
        if last == "computing" and (self.workers[rank].steps_a_round or 1.0) < 1.5:
            return "communicating"
        return "computing"

    def groups(self) -> list[tuple[int, ...]]:
        """Returns ranks that meet apart from others, as in GSP, the largest group first; [] where all or nobody
        meet."""
        here = [worker.rank for worker in self.workers if worker.here]
        found = {self._met[rank] for rank in here if rank in self._met}
        apart = sum(map(len, found)) == len({rank for group in found for rank in group}) == len(here)
        return sorted(found, key=lambda group: (-len(group), group)) if apart and 1 < len(found) < len(here) else []

    def collapse(self) -> str:
        """Returns why the run counts as collapsed, or ""."""
        return collapse(self.evaluations.points, sum(worker.steps for worker in self.workers))

    def slow_servers(self) -> list[int]:
        """Returns which of several servers, or whose links, make the exchange slow; the latest first."""
        found = self.verdict.bottleneck
        return self.lags.latest(LATER * found.exchange_s) if found and len(self.shards) > 1 else []
