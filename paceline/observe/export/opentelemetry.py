"""Exports to OpenTelemetry by its own SDK: a run is one trace of spans, and the metrics of /metrics are data points.

    run                                   events: who was lost, what was refused, why it ended
      worker (rank, device, host)         events: what the scheme decided about it, and why
        computing | communicating | waiting   steps, samples, exchanges
      evaluation (accuracy, loss, samples)

    pip install 'paceline[otel]'
    paceline export runs/a --to opentelemetry http://localhost:4318
    paceline train ... --hook paceline.observe.export.opentelemetry:Live

Spans of a worker that are shorter than a second become sums of a second, of which a backend can hold those of long
runs. Times are the trace's: seconds since training began, on each party's own clock, laid on the wall clock at which
that was. So what is exported long after a run lies where the run was.
"""

from __future__ import annotations

import math
import time
import tomllib
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from paceline.core.errors import ConfigError, PacelineError
from paceline.core.files.regular_file import read_regular
from paceline.core.trace import ARRIVALS, Decided, Ended, Evaluated, Gated, MemberChange, Record, Span, to_dict
from paceline.observe.export.prometheus import STALENESS, STALENESS_HELP, Family, Metrics
from paceline.observe.plots.timeline import bars
from paceline.observe.trace.compaction import WINDOW_S, Thinner
from paceline.observe.trace.trace_file import is_timed

INSTALL = "OpenTelemetry's SDK is not installed; pip install 'paceline[otel]'"
"""The way out, where the library is missing."""
SCOPE = "paceline"
EVERY_S = 5.0
"""Metrics are sent at every evaluation, and after so many seconds of the run's time without one."""
EVENTS_MAX = 1000
"""Events of a span that are kept; a worker's decisions may be more."""


class RefusedError(PacelineError):
    """Is raised when nobody takes what is sent."""


class Telemetry:
    """Makes spans and metrics of the records it is called with, each party's in order, and sends them now and then.

        spans, metrics  exporters of the SDK
        about           attributes of the resource, such as the run and its scheme
        begun_at        the wall clock when training began, in seconds since 1970

    Calling and closing it raise RefusedError when nobody takes what is sent.
    """

    def __init__(self, spans: Any, metrics: Any, about: Mapping[str, str], begun_at: float) -> None:
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import SpanLimits, TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        self._spans, self._points, self._begun_at = spans, metrics, begun_at
        named = Resource.create({"service.name": SCOPE, **{f"{SCOPE}.{name}": fact for name, fact in about.items()}})
        self._resource = named.merge(OTELResourceDetector().detect())  # what the user's environment says wins
        self._over = InMemorySpanExporter()
        provider = TracerProvider(
            resource=self._resource, span_limits=SpanLimits(max_events=EVENTS_MAX), shutdown_on_exit=False
        )
        provider.add_span_processor(SimpleSpanProcessor(self._over))
        self._tracer = provider.get_tracer(SCOPE)
        self._run = self._begin("run", 0.0, None, {})
        self._workers: dict[int, Any] = {}
        self._thinner, self._metrics = Thinner(0), Metrics()
        self._now = self._sent = 0.0
        self.count = 0
        """Spans that were sent."""

    def __call__(self, record: Record) -> None:
        if not is_timed(record):
            return
        self._now = max(self._now, record.at)
        self._metrics.add(record)
        self._lay(record)
        if isinstance(record, Evaluated) or self._now >= self._sent + EVERY_S:
            self._send()

    def close(self) -> None:
        """Ends all spans and sends everything that is left."""
        self._stretches(self._thinner.rest())
        for span in (*self._workers.values(), self._run):
            span.end(self._ns(self._now))
        self._send()
        self._spans.shutdown()
        self._points.shutdown()

    # ---- spans ---------------------------------------------------------------------------------------------
    def _lay(self, record: Record) -> None:
        """Puts a record into the tree of spans."""
        match record:
            case Span():
                self._stretches(self._thinner.within(record, WINDOW_S))
            case Evaluated(accuracy=accuracy, loss=loss, samples=samples):
                told = {"accuracy": accuracy, "samples": samples} | ({"loss": loss} if math.isfinite(loss) else {})
                self._begin("evaluation", record.at, self._run, told).end(self._ns(record.at + record.seconds))
            case MemberChange(party=party) if party.startswith("worker "):
                self._member(record, int(party.split()[1]))
            case Decided(rank=rank, verdict=verdict):
                self._note(self._worker(rank), verdict, record)
            case Gated(rank=rank, refused=refused):
                self._note(self._worker(rank), "refused" if refused else "wild", record)
            case MemberChange(party=party, event=event):
                self._note(self._run, f"{party} {event}", record)
            case Ended():
                self._note(self._run, "ended", record)

    def _stretches(self, records: Iterable[Record]) -> None:
        """Makes a span of each stretch of a worker's time."""
        for bar in bars(records):
            told = {"rank": bar.rank, "steps": bar.steps} if bar.steps else {"rank": bar.rank}
            self._begin(bar.activity, max(0.0, bar.begin), self._worker(bar.rank), told).end(self._ns(bar.end))

    def _member(self, record: MemberChange, rank: int) -> None:
        """Begins a worker's span when it joins. It ends when the worker rejoins, or with the run.

        What a worker did last may be heard of after it has left, so leaving does not end its span.
        """
        if record.event in ARRIVALS:
            if rank in self._workers:
                self._workers.pop(rank).end(self._ns(record.at))
            self._worker(rank, record.at).set_attributes({"device": record.device, "host": record.host})
        if record.event != "joined":
            self._note(self._worker(rank), record.event, record)

    def _worker(self, rank: int, at: float = 0.0) -> Any:
        """Returns the open span of a worker."""
        if rank not in self._workers:
            self._workers[rank] = self._begin("worker", at, self._run, {"rank": rank})
        return self._workers[rank]

    def _begin(self, name: str, at: float, inside: Any, told: Mapping[str, Any]) -> Any:
        """Begins a span at `at` seconds of the run, below the span `inside`, or as the topmost one."""
        from opentelemetry.trace import set_span_in_context

        context = None if inside is None else set_span_in_context(inside)
        return self._tracer.start_span(name, context, attributes=told, start_time=self._ns(at))

    def _note(self, span: Any, name: str, record: Record) -> None:
        """Adds a record to a span, as an event with the record's fields."""
        told = {key: value for key, value in to_dict(record).items() if key not in ("kind", "at")}
        span.add_event(name, told, timestamp=self._ns(record.at))

    def _ns(self, at: float) -> int:
        """Returns nanoseconds since 1970 for a time of the trace."""
        return round((self._begun_at + at) * 1e9)

    # ---- metrics -------------------------------------------------------------------------------------------
    def _send(self) -> None:
        """Sends spans that are over, and all metrics. Raises RefusedError."""
        self._sent = self._now
        over = self._over.get_finished_spans()
        self._over.clear()
        self.count += len(over)
        if (over and not _taken(self._spans.export(over))) or not _taken(self._points.export(self._data())):
            raise RefusedError("no OTLP receiver is there, or it refuses; OTEL_EXPORTER_OTLP_ENDPOINT says where it is")

    def _data(self) -> Any:
        """Returns all metrics as they are now."""
        from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        found = [self._metric(name, family) for name, family in self._metrics.families.items() if family.values]
        if self._metrics.staleness:
            found.append(self._histogram())
        scope = ScopeMetrics(scope=InstrumentationScope(SCOPE), metrics=found, schema_url="")
        return MetricsData([ResourceMetrics(resource=self._resource, scope_metrics=[scope], schema_url="")])

    def _metric(self, name: str, family: Family) -> Any:
        """Returns a family of metrics as the SDK has it: counters are cumulative sums."""
        from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Metric, NumberDataPoint, Sum

        points = [
            NumberDataPoint(attributes=dict(labels), **self._when(), value=value)
            for labels, value in family.values.items()
            if math.isfinite(value)
        ]
        sums = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
        data = sums if family.kind == "counter" else Gauge(points)
        unit = "s" if "seconds" in name else "1"
        return Metric(name=f"{SCOPE}.{name.removesuffix('_total')}", description=family.help, unit=unit, data=data)

    def _histogram(self) -> Any:
        """Returns the histogram of staleness, in versions, with the bounds of /metrics."""
        from opentelemetry.sdk.metrics.export import AggregationTemporality, Histogram, HistogramDataPoint, Metric

        late = self._metrics.staleness
        ends = [-1, *STALENESS, max(late)]
        point = HistogramDataPoint(
            attributes={},
            **self._when(),
            count=late.total(),
            sum=sum(versions * n for versions, n in late.items()),
            bucket_counts=[sum(n for v, n in late.items() if low < v <= high) for low, high in pairwise(ends)],
            explicit_bounds=STALENESS,
            min=min(late),
            max=max(late),
        )
        data = Histogram([point], AggregationTemporality.CUMULATIVE)
        return Metric(name=f"{SCOPE}.staleness", description=STALENESS_HELP, unit="1", data=data)

    def _when(self) -> dict[str, Any]:
        """Returns the times of a data point: from the beginning of the run until now."""
        return {"start_time_unix_nano": self._ns(0.0), "time_unix_nano": self._ns(self._now)}


def _taken(result: Any) -> bool:
    """Returns True if the exporter was successful: results of spans and of metrics are two types of the same words."""
    return bool(result.name == "SUCCESS")


class Live:
    """Is a hook that exports the run while it goes on.

    The SDK's environment says where to and as whom: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS,
    OTEL_SERVICE_NAME, ...
    """

    def __init__(self, out: str) -> None:
        self._out, self._exporters = out, exporters()
        self._early: list[Record] = []
        self._telemetry: Telemetry | None = None

    def __call__(self, record: Record) -> None:
        """Exports a record. Until one has a time in the run, nobody knows when the run began, and records are held
        back."""
        self._early.append(record)
        if record.at > 0 and self._telemetry is None:
            self._telemetry = Telemetry(*self._exporters, facts(self._out), time.time() - record.at)
        if self._telemetry is not None:
            for early in self._early:
                self._telemetry(early)
            self._early.clear()

    def close(self) -> None:
        """Sends what is left, if anything was ever sent."""
        if self._telemetry is not None:
            self._telemetry.close()


def facts(out: str) -> dict[str, str]:
    """Returns folder and scheme of the run in that folder."""
    try:
        scheme = tomllib.loads(read_regular(Path(out) / "config.toml").decode())["run"]["scheme"]
    except (OSError, KeyError, ValueError):
        return {"run": out}
    return {"run": out, "scheme": str(scheme)}


def send(endpoint: str, records: Iterable[Record], about: Mapping[str, str], begun_at: float) -> int:
    """Sends a run that lies on disk to an OTLP receiver, such as http://localhost:4318; returns how many spans.

    Raises RefusedError when nobody takes them, ConfigError without the SDK.
    """
    telemetry = Telemetry(*exporters(endpoint), about, begun_at)
    for record in records:
        telemetry(record)
    telemetry.close()
    return telemetry.count


def exporters(endpoint: str | None = None) -> tuple[Any, Any]:
    """Returns exporters of spans and of metrics, over OTLP and HTTP. `endpoint` None: where the SDK's environment says.

    Raises ConfigError without the SDK.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise ConfigError(INSTALL) from None
    if endpoint is None:
        return OTLPSpanExporter(), OTLPMetricExporter()
    root = endpoint.rstrip("/")
    return OTLPSpanExporter(endpoint=f"{root}/v1/traces"), OTLPMetricExporter(endpoint=f"{root}/v1/metrics")
