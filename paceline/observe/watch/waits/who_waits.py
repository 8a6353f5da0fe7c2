"""Gathers from the trace who waits for whom, record by record, and keeps the verdict (`verdict.py`).

It uses no files and no clocks. Parties may be heard in any order: each worker is measured by its own clock alone.
"""

from __future__ import annotations

from paceline.core.trace import ARRIVALS, Applied, Decided, Ended, MemberChange, Record, Span
from paceline.observe.trace.trace_file import is_timed
from paceline.observe.watch.waits.bottleneck import communicating_s, slow_links
from paceline.observe.watch.waits.straggler import WorkerTiming
from paceline.observe.watch.waits.verdict import STALL_PAUSES, STALL_S, Evidence, Judgement, WaitVerdict
from paceline.observe.watch.waits.worker_rates import ACTIVITIES, WINDOW_S, WorkerRates

LOOK_S = 1.0
"""Seconds of the run between two looks at the evidence, ..."""
LOOK_WORKERS = 100
"""... times the number of workers by this, where there are more of them."""
LEAVING_S = 10.0
"""Workers leave as a run ends: the verdict of one that is over is that from before the first of them did."""
SPANS_NAMED = 7
"""For how many steps of its own, at least, a worker counts as waiting for those that it was last held for."""


class WhoWaits:
    """Holds the workers of a run and what they wait for. `now`: the latest time of any record."""

    def __init__(self, workers: int = 0) -> None:
        self.now = 0.0
        self.ended = ""
        self.workers = [WorkerRates(rank) for rank in range(workers)]
        self.lost_servers: dict[int, float] = {}  # when each was lost, until another one has taken its place
        self._judgement = Judgement()
        self._look_at = 0.0
        self._changed = False  # somebody has come or gone since the last look
        self._leaving: tuple[float, WaitVerdict] | None = None  # when workers began to leave, and the verdict by then
        self._waits: dict[int, dict[str, Decided]] = {}  # by rank: the last wait at each server, while it goes on
        self._waited_for: dict[int, dict[int, float]] = {}  # by rank: for whom, and when last
        self._unnamed: dict[int, float] = {}  # by rank: when it last waited for more than could be named
        self._applied: dict[int, float] = {}  # by rank: when its contribution last was in an update of a server

    @property
    def verdict(self) -> WaitVerdict:
        """Returns what the workers wait for; of a run that is over, what they waited for in the end."""
        return self._judgement.verdict

    def add(self, record: Record) -> None:
        """Adds a record. One whose time or length is not finite belongs to no moment, and is left out."""
        if not is_timed(record):
            return
        if isinstance(record, Ended):
            self.ended = record.reason
            if self._leaving and record.at <= self._leaving[0] + LEAVING_S:
                self._judgement.settle(self._leaving[1])
        match record:
            case Span(activity=activity) if activity in ACTIVITIES:
                self._span(record)
            case Applied():
                for rank in record.ranks:  # the server may be heard long before the worker, which has gone on by then
                    self._waits.get(rank, {}).pop(f"server {record.shard}", None)
                    self._applied[rank] = record.at
            case Decided(verdict="wait"):
                self._wait(record)
            case MemberChange():
                self._member(record)
        self.now = max(self.now, record.at)
        if self.now >= self._look_at:
            self.look()

    def _span(self, span: Span) -> None:
        """Takes what a worker did, and ends the waits that are over by it."""
        self.worker(span.rank).add(span)
        # Waits are over with the waiting, or where none was told of, when computing has begun after them. A server may
        # be heard before the step that its decision followed.
        over = span.at if span.activity == "waiting" else span.at - span.seconds
        if span.rank in self._waits:
            self._waits[span.rank] = {who: wait for who, wait in self._waits[span.rank].items() if wait.at > over}

    def _wait(self, decision: Decided) -> None:
        """Takes a decision that lets a worker wait; it names whom it waits for, if they are few."""
        self._waits.setdefault(decision.rank, {})[decision.party] = decision
        if not decision.whom:
            self._unnamed[decision.rank] = decision.at
        known = self._waited_for.setdefault(decision.rank, {})
        for rank in decision.whom:
            known[rank] = decision.at

    def _member(self, record: MemberChange) -> None:
        """Takes a change of membership."""
        kind, _, number = record.party.rpartition(" ")
        if kind == "worker":
            worker = self.worker(int(number))
            worker.here = record.event in ARRIVALS
            worker.device, worker.host = record.device or worker.device, record.host or worker.host
            self._changed = True
            # Those that leave as the run ends leave one after the other, and are looked at together.
            one_by_one = record.event == "left" and any(worker.here for worker in self.workers)
            if record.at > 0 and not one_by_one:
                self._look_at = 0.0
            if record.event == "left" and not (self._leaving and record.at <= self._leaving[0] + LEAVING_S):
                self._leaving = record.at, self.verdict
        elif kind == "server":
            self.lost_servers.pop(int(number), None)
            if record.event == "lost":
                self.lost_servers[int(number)] = record.at
            if record.at > 0:
                self._look_at = 0.0

    def worker(self, rank: int) -> WorkerRates:
        """Returns a worker; those that were not known yet are made."""
        while rank >= len(self.workers):
            self.workers.append(WorkerRates(len(self.workers)))
        return self.workers[rank]

    # ---- what follows from them --------------------------------------------------------------------------
    def look_again(self) -> None:
        """Judges before somebody is shown what has come since the last look: one long wait may change the shares. With
        many workers the next look is soon enough."""
        if len(self.workers) <= LOOK_WORKERS:
            self.look()

    def look(self) -> None:
        """Judges by what is known now, while the run goes on."""
        self._look_at = self.now + LOOK_S * max(1.0, len(self.workers) / LOOK_WORKERS)
        if self.ended:
            return
        if self.lost_servers:
            since = min(self.lost_servers.values())
            self._judgement.settle(WaitVerdict(kind="lost", since=since, grave=True))
        elif (stalled := self._stall()) is not None:
            self._judgement.settle(stalled)
        else:
            evidence = Evidence.of(self.workers, self.timings())
            enough = evidence is not None and evidence.is_enough(self.workers, self.now)
            self._judgement.look(self.now, evidence, enough=enough, afresh=self._changed)
            self._changed = False

    def _stall(self) -> WaitVerdict | None:
        """Returns that no worker has finished a step for long, and who is waited for; None where one has."""
        here = [worker for worker in self.workers if worker.here and worker.latest.steps]
        last = max((worker.stepped_at for worker in here), default=self.now)
        pause = max((worker.pause_s for worker in here), default=0.0)
        if self.now - last < max(STALL_S, STALL_PAUSES * pause):
            return None
        waiting = [wait for worker in here if (wait := self.wait(worker.rank))]
        named = {rank for wait in waiting for rank in wait.whom} - {wait.rank for wait in waiting}
        if not named and len(here) > 1:  # in a mean among workers those that have come are one exchange ahead
            fewest = min(worker.exchanges for worker in here)
            named = {worker.rank for worker in here if worker.exchanges == fewest}
        stalled = tuple(sorted(named)) if len(named) <= len(here) / 2 else ()
        return WaitVerdict(kind="stall", since=last, grave=True, stalled=stalled)

    def wait(self, rank: int) -> Decided | None:
        """Returns why worker `rank` waits, if it does: the last such decision."""
        return max(self._waits.get(rank, {}).values(), key=lambda wait: wait.at, default=None)

    def timings(self) -> list[WorkerTiming]:
        """Returns the times of the workers that take part and have made a step."""
        own_link = {worker.rank for worker in slow_links(self.workers)}
        moving = {
            worker.rank: 0.0 if worker.rank in own_link else min(communicating_s(worker), worker.own_s)
            for worker in self.workers
        }
        return [
            WorkerTiming(
                rank=worker.rank,
                own_s=worker.own_s - moving[worker.rank],
                moving_s=moving[worker.rank],
                waiting_s=worker.waiting_s,
                samples=worker.latest.samples / worker.latest.steps,
                spread_s=worker.spread_s,
                waits_for=self._named(worker),
            )
            for worker in self.workers
            if worker.here and worker.latest.steps
        ]

    def _named(self, worker: WorkerRates) -> frozenset[int] | None:
        """Returns the ranks that a worker has waited for lately, none where servers take what it sends and never let it
        wait; None where the trace does not name all of them."""
        rank = worker.rank
        since = self.now - max(WINDOW_S, SPANS_NAMED * worker.pause_s)
        if self._unnamed.get(rank, -1.0) >= since:
            return None
        if rank not in self._waited_for:
            return frozenset() if self._applied.get(rank, -1.0) >= since else None
        return frozenset(whom for whom, at in self._waited_for[rank].items() if at >= since)
