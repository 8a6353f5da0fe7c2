"""Tells from the trace of a run what steps and exchanges cost alone: core seconds, and what is left of the way.

A second on the clock may be work, or a wait for a core, a server or others. Core seconds (`Span.cpu`, `CpuUsed`) are
work alone. So the simulation can let the waits come about by itself, under another scheme as well:

    quantity                        is
    a step's core seconds           the mean of `Span.cpu` over a worker's steps
    a step's own time               the emulated seconds; otherwise the core seconds and the wait that is left out of
                                    them in the best tenth of the steps, such as that for a GPU
    a worker's part of an exchange  core seconds of its process outside of steps, by exchange
    a server's part                 core seconds of the servers' processes, by exchange
    the way                         what is left of the exchange that is quicker than nine tenths of a worker's,
                                    for the worker that waited least; half of it each way

Example: a worker used 2.2 core seconds in 200 steps and 2.8 in all, one server 0.6, and one exchange in ten took less
than 7 ms. An exchange costs 3 ms at the worker and 3 ms at the server, and 1 ms is the way, 0.5 ms in each direction.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from paceline.core.trace import CpuUsed, LinkTraffic, Record, Span
from paceline.sim.cluster.model import PASS, MessageCosts

ALONE = 0.1
"""The fraction of steps and of exchanges that met nobody else, at least."""
LATE_S_MAX = 5e-4
"""Seconds that an emulated step takes longer, at most, since its process is woken late."""
AMONG_WORKERS = 0.15
"""A server's part of an exchange is about as large as a worker's; below this fraction of it no server took part. Where
the trace has the traffic of links, that says it."""
SERVER_RATIO = 0.9
"""Core seconds of a server by those of a worker, for a megabyte: where only workers' are known."""
FIXED_S = 4e-4
"""Core seconds of an exchange, at most, that do not depend on its bytes: from one size the two cannot be told apart."""


@dataclass(slots=True)
class WorkerCosts:
    """Holds what the trace says of one worker.

    seconds, cpu  of each step, on the clock and of cores
    gaps          seconds between two steps with an exchange between them; local_gaps: between two others
    process_s     core seconds in all; outside_s: of these, outside of steps
    exchanges     within the time of `process_s`
    """

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    local_gaps: list[float] = field(default_factory=list)
    process_s: float = 0.0
    outside_s: float = 0.0
    exchanges: int = 0


@dataclass(frozen=True, slots=True)
class ExchangeCosts:
    """Holds what an exchange costs alone: core seconds of the worker and of each server, seconds of the way.

    among_workers: True if it did not go through servers.
    """

    worker_s: float
    server_s: float
    way_s: float
    among_workers: bool = False

    def messages(
        self, up_mb: float, down_mb: float, model_mb: float, servers: int, computed_mb: float = 0.0
    ) -> MessageCosts:
        """Returns the costs of messages under which an exchange costs this much.

        up_mb, down_mb  megabytes that a worker sends and receives in an exchange
        model_mb        of the whole model, which a worker that carries a mean copies twice besides
        servers         that a worker sends its parts to and hears from
        computed_mb     of vectors that the worker's role computes for an exchange, each in a pass over memory
        """
        parts = 1 if self.among_workers else max(1, servers)
        both_mb = up_mb + down_mb
        worker_s = min(FIXED_S, self.worker_s / 2 / parts)
        more_s = self.worker_s - 2 * parts * worker_s
        if self.among_workers:
            # `sim/core_sharing.py`: both_mb + 2 model_mb are copied, and down_mb added up as in a pass.
            passed_mb = down_mb + computed_mb
            per_mb = more_s / max(1e-9, both_mb + 2 * model_mb + PASS * SERVER_RATIO * passed_mb)
            return MessageCosts(
                worker_s=worker_s, worker_s_per_mb=per_mb, server_s=worker_s, server_s_per_mb=SERVER_RATIO * per_mb
            )
        server_s = min(FIXED_S, self.server_s / 2)
        per_mb = 1 / both_mb if both_mb else 0.0
        server_s_per_mb = (self.server_s - 2 * server_s) * parts * per_mb
        computed_s = min(more_s / 2, PASS * server_s_per_mb * computed_mb)
        return MessageCosts(
            worker_s=worker_s,
            worker_s_per_mb=(more_s - computed_s) * per_mb,
            server_s=server_s,
            server_s_per_mb=server_s_per_mb,
        )


class RunCosts:
    """Gathers the costs of a run from its records. `cores`: of the host, 0 if the trace does not say."""

    def __init__(self, records: Iterable[Record], workers: int, servers: int) -> None:
        self.cores = 0
        self.workers = [WorkerCosts() for _ in range(workers)]
        self._servers, self._told, self._server_s = servers, 0, 0.0
        traffic = {"worker": 0, "server": 0}  # of workers, by the kind of the other party
        spans: list[list[Span]] = [[] for _ in range(workers)]
        used: dict[str, CpuUsed] = {}
        for record in records:
            if isinstance(record, Span):
                spans[record.rank].append(record)
            elif isinstance(record, CpuUsed):
                used[record.party] = record
            elif isinstance(record, LinkTraffic) and record.party.startswith("worker"):
                kind = record.other.split()[0]
                traffic[kind] = traffic.get(kind, 0) + record.sent + record.received
        for rank, worker in enumerate(self.workers):
            _gather(worker, spans[rank], used.get(f"worker {rank}"))
        self._traffic = traffic
        self._exchanges = self._gather_servers(used, spans)
        self.cores = max((record.cores for record in used.values()), default=0)

    @property
    def known(self) -> bool:
        """Returns True if the trace has core seconds of every worker and of the servers."""
        of_workers = all(sum(worker.cpu) > 0 and worker.process_s > 0 for worker in self.workers)
        return of_workers and self._told == self._servers

    def _gather_servers(self, used: dict[str, CpuUsed], spans: list[list[Span]]) -> int:
        """Adds up the core seconds of all servers; returns the exchanges that fall into that time."""
        found = [record for party, record in used.items() if party.startswith("server ")]
        self._told, self._server_s = len(found), sum(record.seconds for record in found)
        until = max((record.at for record in found), default=0.0)
        return sum(span.exchanges for own in spans for span in own if span.at <= until)

    def step_cpu_s(self, rank: int) -> float:
        """Returns the core seconds of a step of worker `rank`."""
        return statistics.fmean(self.workers[rank].cpu)

    def threads(self, rank: int) -> int:
        """Returns how many threads a step of worker `rank` computes with."""
        worker = self.workers[rank]
        busiest = quantile([cpu / seconds for seconds, cpu in zip(worker.seconds, worker.cpu, strict=True)], 1 - ALONE)
        return max(1, round(busiest))

    def own_seconds(self, rank: int, emulated_s: float) -> list[float]:
        """Returns by step the seconds that it takes worker `rank` on free cores. `emulated_s`: at least; 0 for none."""
        worker, threads = self.workers[rank], self.threads(rank)
        pairs = list(zip(worker.seconds, worker.cpu, strict=True))
        if emulated_s:
            late = [max(0.0, seconds - emulated_s) for seconds, cpu in pairs if cpu < emulated_s]
            return [emulated_s + min(quantile(late, ALONE), LATE_S_MAX)]
        rest = quantile([max(0.0, seconds - cpu / threads) for seconds, cpu in pairs], ALONE)
        return [min(seconds, cpu / threads + rest) for seconds, cpu in pairs]

    def exchange(self) -> ExchangeCosts:
        """Returns what an exchange costs alone; zeros if there was none."""
        active = [worker for worker in self.workers if worker.exchanges and worker.gaps]
        if not active:
            return ExchangeCosts(0.0, 0.0, 0.0)
        worker_s = sum(worker.outside_s for worker in active) / sum(worker.exchanges for worker in active)
        server_s = self._server_s / max(1, self._exchanges) / max(1, self._servers)
        quickest = min(quantile(worker.gaps, ALONE) for worker in active)
        # What a process does beside its exchanges, such as reporting, is in its core seconds too. Where exchanges are
        # few that is most of them.
        worker_s = min(worker_s, quickest)
        if any(self._traffic.values()):
            among_workers = self._traffic["worker"] > self._traffic["server"]
        else:
            among_workers = server_s < AMONG_WORKERS * worker_s
        if among_workers:
            server_s = 0.0
        return ExchangeCosts(worker_s, server_s, max(0.0, quickest - worker_s - server_s), among_workers)


def _gather(worker: WorkerCosts, spans: Sequence[Span], used: CpuUsed | None) -> None:
    """Adds what the spans of a worker and the last count of its core seconds say."""
    before, in_steps = None, 0.0
    for span in spans:
        if not span.steps:
            continue
        if span.steps == 1 and before is not None:
            gaps = worker.gaps if span.exchanges else worker.local_gaps
            gaps.append(max(0.0, span.at - span.seconds - before))
        before = span.at
        worker.seconds.append(span.seconds / span.steps)
        worker.cpu.append(span.cpu / span.steps)
        if used is not None and span.at <= used.at:
            in_steps += span.cpu
            worker.exchanges += span.exchanges
    if used is not None:
        between_s = quantile(worker.local_gaps, ALONE) * len(worker.local_gaps)
        worker.process_s, worker.outside_s = used.seconds, max(0.0, used.seconds - in_steps - between_s)


def quantile(values: Sequence[float], part: float) -> float:
    """Returns the value below which `part` of `values` lies; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0
