"""Says in a table what a figure shows, for whoever does not see it: a head, and rows of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paceline.core.trace import Span
from paceline.observe.formatting.number_format import accuracy_text, count_text, megabytes, percent, seconds_text
from paceline.observe.plots.bars import megabytes_a_second
from paceline.observe.plots.curves import AXES
from paceline.observe.plots.digest import Digest, RunDigest
from paceline.observe.plots.style import ACTIVITIES
from paceline.observe.runs.seed_statistics import Spread
from paceline.observe.runs.summary import Summary
from paceline.observe.terminal.comparison import rate

QUARTERS = (0.25, 0.5, 0.75, 1.0)
"""Parts of a curve at which its height is said."""
WORKERS_MAX = 64
"""Workers of a run that have a row; of more, the first ones."""
Numbers = tuple[tuple[str, ...], list[tuple[str, ...]]]


def of_accuracy(entries: Sequence[RunDigest], by: str) -> Numbers:
    """Returns the accuracy of each run at a quarter, half, three quarters and the end of its curve."""
    _, place = AXES[by]
    rows: list[tuple[str, ...]] = []
    for entry in entries:
        for d in entry.digests:
            points = [(place(d, e), e.accuracy) for e in d.evaluations]
            if points:
                end = points[-1][0]
                cells = [max((p for p in points if p[0] <= part * end), default=points[0]) for part in QUARTERS]
                told = [f"{accuracy_text(height)} at {_place(at, by)}" for at, height in cells]
                rows.append((_name(entry, d), *told))
    return ("run", *(f"{percent(part)} of the way" for part in QUARTERS)), rows


def of_target(entries: Sequence[RunDigest]) -> Numbers:
    """Returns the seconds to the target."""
    return _means(entries, "seconds to the target", lambda s: s.seconds_to_target, seconds_text)


def of_throughput(entries: Sequence[RunDigest]) -> Numbers:
    """Returns the samples a second."""
    return _means(entries, "samples a second", lambda s: s.samples_per_second, count_text)


def of_traffic(entries: Sequence[RunDigest]) -> Numbers:
    """Returns what the workers sent and received, of the first run of each group."""
    rows: list[tuple[str, ...]] = []
    for entry in entries:
        s = entry.group.first
        rates = [f"{megabytes_a_second(rate(count, s)):.1f} MB/s" for count in (s.bytes_up, s.bytes_down)]
        rows.append((entry.name, *rates, megabytes(s.bytes_up), megabytes(s.bytes_down)))
    return ("run", "sent", "received", "MB sent in all", "MB received in all"), rows


def of_shares(entries: Sequence[RunDigest]) -> Numbers:
    """Returns where the time of each worker went, in the first run of each group."""
    rows: list[tuple[str, ...]] = []
    for entry in entries:
        for worker in entry.group.first.workers[:WORKERS_MAX]:
            told = (worker.shares.computing, worker.shares.communicating, worker.shares.waiting)
            rows.append((f"{entry.name}, worker {worker.rank}", *map(percent, told)))
    return ("worker", "computing", "communicating", "waiting"), rows


def of_staleness(entries: Sequence[RunDigest]) -> Numbers:
    """Returns how late contributions were, in versions."""
    rows: list[tuple[str, ...]] = []
    for entry in entries:
        counts = sorted((late, n) for d in entry.digests for late, n in d.staleness.items())
        total = sum(n for _, n in counts)
        if total:
            mean = sum(late * n for late, n in counts) / total
            fresh = sum(n for late, n in counts if late == 0) / total
            rows.append((entry.name, f"{mean:.1f}", str(counts[-1][0]), percent(fresh)))
    return ("run", "mean staleness", "largest", "of the present version"), rows


def of_timeline(d: Digest) -> Numbers:
    """Returns what each worker did in the seconds that a timeline shows."""
    spans: dict[int, dict[str, float]] = {}
    for record in d.begin:
        if isinstance(record, Span):
            begin, end = record.at - record.seconds, min(record.at, d.until)
            own = spans.setdefault(record.rank, {"steps": 0.0})
            own[record.activity] = own.get(record.activity, 0.0) + max(0.0, end - begin)
            own["steps"] += record.steps if record.at <= d.until else 0
    rows: list[tuple[str, ...]] = [
        (f"worker {rank}", f"{own['steps']:.0f}", *(seconds_text(own.get(name, 0.0)) for name in ACTIVITIES))
        for rank, own in sorted(spans.items())[:WORKERS_MAX]
    ]
    return (f"in the first {seconds_text(d.until)}", "steps", *ACTIVITIES), rows


def _means(
    entries: Sequence[RunDigest], head: str, value: Callable[[Summary], float | None], shown: Callable[[float], str]
) -> Numbers:
    """Returns, for each group, the mean of `value` over its runs, and of how many runs that is."""
    rows: list[tuple[str, ...]] = []
    for entry in entries:
        values = [v for v in map(value, entry.group.summaries) if v is not None]
        spread = Spread.of(values)
        count = f"{len(values)} of {len(entry.group.runs)}"
        rows.append((entry.name, spread.text(shown) if spread else "never", count))
    return ("run", head, "runs"), rows


def _name(entry: RunDigest, d: Digest) -> str:
    """Returns the name of a run; of several of a group with the seed."""
    return f"{entry.name}, seed {d.summary.seed}" if len(entry.digests) > 1 else entry.name


def _place(at: float, by: str) -> str:
    """Returns a place on the axis."""
    return seconds_text(at) if by == "time" else count_text(at)
