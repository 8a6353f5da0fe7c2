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
    ARRIVALS,
    OPERATOR,
    Applied,
    Decided,
    Ended,
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
from paceline.observe.watch.bottleneck import LATER, Bottleneck, ServerLags, bottleneck
from paceline.observe.watch.evaluations import Evaluations
from paceline.observe.watch.resource_rates import Resources
from paceline.observe.watch.straggler import Straggler, WorkerTiming, straggler
from paceline.observe.watch.time_bins import TimeBins
from paceline.observe.watch.worker_rates import ACTIVITIES, WorkerRates

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
    """Holds the state of a run. `now`: the latest time of any record; `ended`: why the run is over, "" while it goes
    on."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self.reset()

    def reset(self) -> None:
        """Forgets everything: another run begins in the same file."""
        self.now = 0.0
        self.ended = ""
        self.records = 0
        self.workers = [WorkerRates(rank) for rank in range(self._workers)]
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
        self._waits: dict[int, dict[str, Decided]] = {}  # by rank: the last wait at each server, while it goes on
        self._waited_for: dict[int, dict[int, float]] = {}  # by rank: for whom, and when last
        self._unnamed: dict[int, float] = {}  # by rank: when it last waited for more than could be named

    def add_all(self, records: Iterable[Record]) -> None:
        """Takes records, of different parties in any order."""
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        """Adds a record. One whose time or length is not finite belongs to no moment, and is left out."""
        if not is_timed(record):
            return
        match record:
            case MemberChange(event="joined") if self.ended:
                self.reset()
                self._member(record)
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
            case Ended():
                self.ended = record.reason
        self._goodput.add(record)
        self.records += 1
        self.now = max(self.now, record.at)

    # ---- each kind ---------------------------------------------------------------------------------------
    def _span(self, span: Span) -> None:
        """Takes what a worker did, and ends the waits that are over by it."""
        worker = self.worker(span.rank)
        worker.add(span)
        if span.activity not in ACTIVITIES:
            return
        begin = span.at - span.seconds
        # Waits are over with the waiting, or where none was told of, when computing has begun after them. A server may
        # be heard before the step that its decision followed.
        over = span.at if span.activity == "waiting" else begin
        if span.rank in self._waits:
            self._waits[span.rank] = {who: wait for who, wait in self._waits[span.rank].items() if wait.at > over}
        self.strips.add(span.rank, ACTIVITIES.index(span.activity), begin, span.at, span.seconds)
        if span.activity == "computing":
            self.rates.add(0, 0, begin, span.at, span.samples)
            self.strips.span_s = max(self.strips.span_s, STEPS_SHOWN * worker.step_s)

    def worker(self, rank: int) -> WorkerRates:
        """Returns a worker; those that were not known yet are made."""
        while rank >= len(self.workers):
            self.workers.append(WorkerRates(len(self.workers)))
        return self.workers[rank]

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
        for rank in update.ranks:  # the server may be heard long before the worker, which has gone on by then
            self._waits.get(rank, {}).pop(f"server {update.shard}", None)
        if update.shard == 0:
            met = tuple(sorted(update.ranks))
            for rank in met:
                self._met[rank] = met
                self.lateness.setdefault(rank, Lateness()).add(update.staleness)

    def _decision(self, decision: Decided) -> None:
        """Takes a decision of a scheme. One that lets a worker wait names whom it waits for."""
        if decision.party == OPERATOR and (factor := rate_factor(decision.reason)) is not None:
            self.rate_factor = factor
        if decision.verdict != "wait":
            self._event(decision)
            return
        self._waits.setdefault(decision.rank, {})[decision.party] = decision
        if not decision.whom:
            self._unnamed[decision.rank] = decision.at
        known = self._waited_for.setdefault(decision.rank, {})
        for rank in decision.whom:
            known[rank] = decision.at

    def _event(self, record: Decided | MemberChange | Gated) -> None:
        """Adds a record to the list of events that the page shows."""
        self.events.append(record)
        self.event_count += 1

    def _member(self, record: MemberChange) -> None:
        """Takes a change of membership; those that join before training begins are no events."""
        kind, _, number = record.party.rpartition(" ")
        if kind == "worker":
            worker = self.worker(int(number))
            worker.here = record.event in ARRIVALS
            worker.device, worker.host = record.device or worker.device, record.host or worker.host
        elif kind == "server":
            shard = self.shards.setdefault(int(number), ShardState())
            shard.host = record.host or shard.host
            shard.lost_at = record.at if record.event == "lost" else None
        if record.event != "joined" or record.at > 0:
            self._event(record)

    # ---- what follows from them --------------------------------------------------------------------------
    @property
    def samples(self) -> int:
        """Returns the samples that all workers have trained."""
        return sum(worker.samples for worker in self.workers)

    @property
    def goodput(self) -> float | None:
        """Returns the share of the workers' capacity so far that is in the model; None while there is none."""
        return self._goodput.share(len(self.workers), self.now)

    def wait(self, rank: int) -> Decided | None:
        """Returns why worker `rank` waits, if it does: the last such decision."""
        return max(self._waits.get(rank, {}).values(), key=lambda wait: wait.at, default=None)

    def standing(self, rank: int) -> str:
        """Returns what worker `rank` is most likely at now: what follows on what it reported last."""
        if self.wait(rank):
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

    def timings(self) -> list[WorkerTiming]:
        """Returns the times of the workers that take part and have made a step."""
        return [
            WorkerTiming(
                rank=worker.rank,
                own_s=worker.own_s,
                waiting_s=worker.waiting_s,
                samples=worker.latest.samples / worker.latest.steps,
                spread_s=worker.spread_s,
                waits_for=self._named(worker.rank),
            )
            for worker in self.workers
            if worker.here and worker.latest.steps
        ]

    def collapse(self) -> str:
        """Returns why the run counts as collapsed, or ""."""
        return collapse(self.evaluations.points, sum(worker.steps for worker in self.workers))

    def lost_servers(self) -> list[int]:
        """Returns the numbers of the servers that are down."""
        return [number for number, shard in sorted(self.shards.items()) if shard.lost_at is not None]

    def bottleneck(self) -> Bottleneck | None:
        """Returns what bounds the run's speed, or None while too little is known."""
        return bottleneck(self.workers, self.timings())

    def slow_servers(self, found: Bottleneck | None) -> list[int]:
        """Returns which of several servers, or whose links, make the exchange slow; the latest first."""
        return self.lags.latest(LATER * found.exchange_s) if found and len(self.shards) > 1 else []

    def straggler(self) -> Straggler | None:
        """Returns who holds the others up, or None while nobody does or too little is known."""
        return straggler(self.timings())

    def _named(self, rank: int) -> frozenset[int] | None:
        """Returns the ranks that worker `rank` has waited for lately; None where the trace did not name all of them."""
        since = self.now - self.strips.span_s / 4
        if rank not in self._waited_for or self._unnamed.get(rank, -1.0) >= since:
            return None
        return frozenset(whom for whom, at in self._waited_for[rank].items() if at >= since)
