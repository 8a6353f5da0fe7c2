"""Writes Chrome's trace events for ui.perfetto.dev and chrome://tracing, with a track for each worker and server.

The format is "Trace Event Format" (the Chromium project). Times are microseconds; `X` is a span, `i` an instant, `C`
a counter, `M` a name. Every party's times are on its own clock, as in the trace: small shifts between tracks mean
nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO

from paceline.core.trace import Applied, Decided, Ended, Evaluated, Gated, MemberChange, Record, Span, to_dict
from paceline.observe.plots.timeline import bars
from paceline.observe.runs.summary import WorkerSummary
from paceline.observe.trace.trace_file import is_timed

RUN, WORKERS, SERVERS = 1, 2, 3
"""Process IDs: for the run as a whole, for the workers, for the servers."""
FIRST_TRACK = 10
"""Thread ID of worker 0 and of server 0: a thread whose ID is that of its process would count as its main thread."""
Event = dict[str, Any]


def write(out: TextIO, records: Iterable[Record], workers: Sequence[WorkerSummary] = (), title: str = "run") -> int:
    """Writes all events, one a line, and returns how many. Without `workers` their tracks have numbers only."""
    out.write('{"displayTimeUnit":"ms","traceEvents":[')
    number = 0
    for number, event in enumerate(events(records, workers, title), 1):
        out.write("\n" if number == 1 else ",\n")
        json.dump(event, out, separators=(",", ":"), allow_nan=False)
    out.write("\n]}\n")
    return number


def events(records: Iterable[Record], workers: Sequence[WorkerSummary] = (), title: str = "run") -> Iterator[Event]:
    """Yields names of tracks, then spans, then everything else. Records without a finite time are left out."""
    records = list(filter(is_timed, records))
    yield from _names(records, workers, title)
    yield from (_span(bar.rank, bar.activity, bar.begin, bar.end, bar.steps) for bar in bars(records))
    for record in records:
        yield from _moment(record)


def _names(records: Sequence[Record], workers: Sequence[WorkerSummary], title: str) -> Iterator[Event]:
    """Yields the names and the order of processes and tracks."""
    known = {worker.rank: worker for worker in workers}
    ranks = {record.rank for record in records if isinstance(record, Span)} | set(known)
    shards = {record.shard for record in records if isinstance(record, Applied)}
    for order, (process, name) in enumerate(((RUN, title), (WORKERS, "workers"), (SERVERS, "servers"))):
        yield _meta("process_name", process, name=name)
        yield _meta("process_sort_index", process, sort_index=order)
    for rank in sorted(ranks):
        yield from _track(WORKERS, rank, f"worker {rank}{_what(known.get(rank))}")
    for shard in sorted(shards):
        yield from _track(SERVERS, shard, f"server {shard}")


def _what(worker: WorkerSummary | None) -> str:
    """Returns behind a worker's name what it runs on, and how many times slower it is made to be."""
    if worker is None:
        return ""
    return f" ({worker.device}{'' if worker.slowdown == 1 else f' ×{worker.slowdown:.3g}'})"


def _track(process: int, number: int, name: str) -> Iterator[Event]:
    """Yields what names a track and puts it in its place; the viewer would sort them by name otherwise."""
    yield _meta("thread_name", process, FIRST_TRACK + number, name=name)
    yield _meta("thread_sort_index", process, FIRST_TRACK + number, sort_index=number)


def _meta(what: str, process: int, thread: int = 0, **arguments: Any) -> Event:
    """Returns an event that says something about a process or a track, not about a moment."""
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": arguments}


def _span(rank: int, activity: str, begin: float, end: float, steps: int) -> Event:
    """Returns a bar on a worker's track, from `begin` to `end` in seconds."""
    # Both ends are rounded, not the length: two spans that touch still do, and none reaches into the next.
    begin_ns, end_ns = max(0, round(begin * 1e9)), max(0, round(end * 1e9))
    event = {"ph": "X", "name": activity, "cat": "span", "pid": WORKERS, "tid": FIRST_TRACK + rank}
    times = {"ts": begin_ns / 1000, "dur": (end_ns - begin_ns) / 1000}
    return event | times | ({"args": {"steps": steps}} if steps else {})


def _moment(record: Record) -> Iterator[Event]:
    """Yields the instants and counters of a record."""
    match record:
        case Evaluated():
            yield from _counters(record)
        case Decided():
            yield _instant(record, record.verdict, WORKERS, record.rank)
        case Gated():
            yield _instant(record, "refused" if record.refused else "wild", WORKERS, record.rank)
        case Applied():
            yield _instant(record, f"version {record.version}", SERVERS, record.shard)
            if record.shard == 0:
                yield _counter("staleness", record.at, record.staleness)
        case MemberChange():
            yield _instant(record, f"{record.party} {record.event}", RUN)
        case Ended():
            yield _instant(record, f"ended: {record.reason}", RUN)


def _counters(record: Evaluated) -> Iterator[Event]:
    """Yields the points of the curves of one evaluation; values that are not finite are left out, as JSON has none."""
    numbers = {"test accuracy": record.accuracy, "test loss": record.loss, "samples": record.samples}
    yield from (_counter(name, record.at, n) for name, n in numbers.items() if math.isfinite(n))


def _counter(name: str, at: float, number: float) -> Event:
    """Returns one point of a curve."""
    return {"ph": "C", "name": name, "pid": RUN, "tid": 0, "ts": _micros(at), "args": {name: number}}


def _micros(at: float) -> float:
    """Returns microseconds; the format has no time before its beginning, of which a party's own clock may know."""
    return max(0.0, at * 1e6)


def _instant(record: Record, name: str, process: int, number: int | None = None) -> Event:
    """Returns a mark on a track, or across all of them where `number` is None."""
    where = {"tid": 0, "s": "g"} if number is None else {"tid": FIRST_TRACK + number, "s": "t"}
    told = {key: value for key, value in to_dict(record).items() if key not in ("kind", "at") and value == value}
    return {"ph": "i", "name": name, "pid": process, **where, "ts": _micros(record.at), "args": told}
