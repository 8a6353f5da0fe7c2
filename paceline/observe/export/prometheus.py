"""Gives a run's state as Prometheus reads it, in its text exposition format, which prometheus-client writes.

    metrics = Metrics(run="runs/a", scheme="ssp")
    for record in read_trace("runs/a/trace.jsonl"):
        metrics.add(record)
    print(metrics.text())

Counters grow while the run goes on, so `rate(paceline_samples_total[1m])` is the throughput. `docs/grafana.json` is
a board over these names.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from paceline.core.trace import (
    ARRIVALS,
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
)
from paceline.observe.trace.trace_file import is_timed

__all__ = ["CONTENT_TYPE", "HELP", "STALENESS", "STALENESS_HELP", "Family", "Metrics"]

STALENESS = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89)
"""Upper ends of the buckets of the histogram of staleness, in versions."""
STALENESS_HELP = "Versions between a contribution's weights and its own update."
"""The help text of the histogram of staleness."""
Labels = tuple[tuple[str, str], ...]
"""Names and values of labels, in the order of the names, so that they may be a key."""


@dataclass(slots=True)
class Family:
    """Holds one metric with its help: a value for each set of labels."""

    kind: str
    help: str
    values: defaultdict[Labels, float] = field(default_factory=lambda: defaultdict(float))


HELP = {
    "steps_total": ("counter", "Mini-batches a worker has computed."),
    "samples_total": ("counter", "Training samples a worker has computed on."),
    "exchanges_total": ("counter", "Results a worker has handed over."),
    "seconds_total": ("counter", "Seconds of a worker, by what it was at."),
    "hidden_seconds_total": ("counter", "Seconds of communication while a worker computed."),
    "updates_total": ("counter", "Updates a server has applied to its shard."),
    "contributions_dropped_total": ("counter", "Contributions that were too late to count."),
    "contributions_refused_total": ("counter", "Contributions with numbers that a server refused."),
    "contributions_wild_total": ("counter", "Contributions far longer than usual, used all the same."),
    "decisions_total": ("counter", "Decisions of the scheme about a worker that changed."),
    "membership_total": ("counter", "Parties that joined, left or were lost."),
    "link_bytes_total": ("counter", "Bytes that one party has sent to another."),
    "memory_bytes": ("gauge", "Resident memory of a party's process."),
    "cores_busy": ("gauge", "CPU time a second of a party's process."),
    "device_memory_bytes": ("gauge", "Memory of the accelerator that a party's process has reserved."),
    "device_busy_ratio": ("gauge", "Share of the time at which the accelerator was busy."),
    "version": ("gauge", "Version of a server's shard."),
    "workers": ("gauge", "Workers that take part."),
    "test_accuracy": ("gauge", "Accuracy on the test set."),
    "test_loss": ("gauge", "Loss on the test set."),
    "run_seconds": ("gauge", "Seconds since training began, as last heard of."),
    "run_ended": ("gauge", "1 when the run is over."),
}
"""Kind and help of every metric, by its name without the prefix."""


class Metrics(Collector):
    """Collects records, in any order; `text` may be called at any moment.

    families   by name, without the prefix
    staleness  how many contributions to shard 0 were so many versions late
    """

    def __init__(self, **labels: str) -> None:
        """`labels`: on every sample, such as the name of the run."""
        self._labels = labels
        self.families = {name: Family(*told) for name, told in HELP.items()}
        self.staleness: Counter[int] = Counter()
        self._here: set[str] = set()

    def add_all(self, records: Iterable[Record]) -> None:
        """Takes records in the order of the trace."""
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        """Counts a record. One whose time or length is not finite is left out: a counter would be none ever after."""
        if not is_timed(record):
            return
        match record:
            case Span():
                self._span(record)
            case Applied():
                self._applied(record)
            case Evaluated():
                self._set("test_accuracy", record.accuracy)
                self._set("test_loss", record.loss)
            case Decided():
                self._grow("decisions_total", 1, rank=record.rank, verdict=record.verdict)
            case Gated():
                self._grow(f"contributions_{'refused' if record.refused else 'wild'}_total", 1, rank=record.rank)
            case MemberChange():
                self._member(record)
            case ResourceUse():
                self._use(record)
            case LinkTraffic():
                self._grow("link_bytes_total", record.sent, source=record.party, target=record.other)
                self._grow("link_bytes_total", record.received, source=record.other, target=record.party)
            case Ended():
                self._set("run_ended", 1)
        seconds = self.families["run_seconds"].values
        self._set("run_seconds", max(record.at, seconds[()]))

    def text(self, **labels: str) -> str:
        """Returns the whole exposition, with `labels` besides those of all; it ends with a line break, as the format
        wants."""
        self._labels |= labels
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry).decode()

    def describe(self) -> list[Metric]:
        """Returns nothing: `register` would call `collect` otherwise, before there are any numbers."""
        return []  # else `register` would call `collect`

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics that have a value, as prometheus-client wants them."""
        for name, family in self.families.items():
            if family.values:
                made = _FAMILIES[family.kind](f"paceline_{name}", family.help)
                for labels, value in family.values.items():
                    made.add_sample(f"paceline_{name}", {**self._labels, **dict(labels)}, value)
                yield made
        if self.staleness:
            yield self._histogram()

    def _span(self, span: Span) -> None:
        """Counts seconds, steps, samples and exchanges of a worker; counters of nothing are not made."""
        self._grow("seconds_total", span.seconds, rank=span.rank, activity=span.activity)
        for name, value in (
            ("steps_total", span.steps),
            ("samples_total", span.samples),
            ("exchanges_total", span.exchanges),
            ("hidden_seconds_total", span.hidden),
        ):
            if value:
                self._grow(name, value, rank=span.rank)

    def _applied(self, update: Applied) -> None:
        """Counts an update of a shard, or contributions that were dropped.

        Staleness is counted at shard 0 alone: each worker sends to every shard, and would be counted as often.
        """
        if update.weight > 0:
            self._grow("updates_total", 1, shard=update.shard)
            self._set("version", update.version, shard=update.shard)
        else:
            self._grow("contributions_dropped_total", len(update.ranks), shard=update.shard)
        if update.shard == 0:
            self.staleness[update.staleness] += len(update.ranks)

    def _member(self, record: MemberChange) -> None:
        """Counts a change of membership, and how many workers are there."""
        kind = record.party.partition(" ")[0]
        self._grow("membership_total", 1, party=kind, event=record.event)
        if kind == "worker":
            self._here.discard(record.party)
            if record.event in ARRIVALS:
                self._here.add(record.party)
            self._set("workers", len(self._here))

    def _use(self, record: ResourceUse) -> None:
        """Sets what a process uses of its machine; what nobody knows is left out."""
        self._set("memory_bytes", record.memory_bytes, party=record.party)
        self._set("cores_busy", record.cores, party=record.party)
        if record.device_total_bytes:
            self._set("device_memory_bytes", record.device_bytes, party=record.party)
        if record.device_share >= 0:
            self._set("device_busy_ratio", record.device_share, party=record.party)

    def _grow(self, name: str, by: float, **labels: object) -> None:
        """Adds `by` to the counter with these labels."""
        self.families[name].values[_sorted(labels)] += by

    def _set(self, name: str, value: float, **labels: object) -> None:
        """Sets the gauge with these labels."""
        self.families[name].values[_sorted(labels)] = value

    def _histogram(self) -> Metric:
        """Returns the histogram of staleness; its bins are cumulative, as the format wants it."""
        ends = [(str(end), float(sum(n for late, n in self.staleness.items() if late <= end))) for end in STALENESS]
        made = HistogramMetricFamily("paceline_staleness", STALENESS_HELP, labels=[*self._labels])
        total = float(sum(late * n for late, n in self.staleness.items()))
        made.add_metric([*self._labels.values()], [*ends, ("+Inf", float(self.staleness.total()))], total)
        return made


_FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


def _sorted(labels: Mapping[str, object]) -> Labels:
    return tuple((key, str(value)) for key, value in labels.items())
