"""Spans and metrics, in the SDK's own memory and as a receiver of OTLP on loopback hears them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.main import main
from paceline.core.trace import Applied, Decided, Ended, Evaluated, MemberChange, Record, Span
from paceline.observe.export.opentelemetry import Telemetry
from paceline.observe.trace.trace_file import TraceWriter

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="OpenTelemetry's SDK is not installed")
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

BEGUN = 1_700_000_000.0
TRACE: list[Record] = [
    MemberChange(at=0.0, party="worker 0", event="joined", device="cpu", host="a"),
    MemberChange(at=0.0, party="worker 1", event="joined", device="cpu", host="b"),
    Span(at=2.0, rank=0, activity="computing", seconds=2.0, steps=1, samples=32, exchanges=1),
    Decided(at=2.0, party="server 0", rank=0, verdict="wait", reason="for worker 1", whom=(1,)),
    Span(at=3.0, rank=1, activity="computing", seconds=3.0, steps=1, samples=32, exchanges=1),
    Applied(at=3.0, shard=0, ranks=(0, 1), version=1, staleness=0, weight=1.0, samples=64),
    Evaluated(at=3.0, accuracy=0.25, loss=float("nan"), samples=64, seconds=0.5),
    Span(at=3.5, rank=0, activity="waiting", seconds=1.5),
    MemberChange(at=4.0, party="worker 1", event="lost", reason="killed"),
    MemberChange(at=6.0, party="worker 1", event="returned", reason="incarnation 2"),
    Applied(at=6.0, shard=0, ranks=(0,), version=2, staleness=120, weight=1.0, samples=32),
    Ended(at=7.0, reason="steps"),
]


class Kept(InMemorySpanExporter):
    """Spans and points, still there after shutdown."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def export(self, what: Any) -> Any:
        if isinstance(what, tuple):
            return super().export(what)
        self.seen.append(what)
        return MetricExportResult.SUCCESS


def told(records: list[Record]) -> tuple[list[Any], list[Any]]:
    """Spans, and what was sent of metrics, time after time."""
    kept = Kept()
    telemetry = Telemetry(kept, kept, {"run": "runs/a"}, BEGUN)
    for record in records:
        telemetry(record)
    telemetry.close()
    return list(kept.get_finished_spans()), kept.seen


def seconds(span: Any) -> tuple[float, float]:
    return tuple(round(ns / 1e9 - BEGUN, 3) for ns in (span.start_time, span.end_time))  # type: ignore[return-value]


def metrics(data: Any) -> dict[str, Any]:
    return {metric.name: metric.data for metric in data.resource_metrics[0].scope_metrics[0].metrics}


def test_a_run_is_one_trace_in_which_each_worker_holds_what_it_was_at() -> None:
    spans, _ = told(TRACE)
    [run] = [span for span in spans if span.name == "run"]
    workers = {span.context.span_id: span.attributes["rank"] for span in spans if span.name == "worker"}
    assert {span.context.trace_id for span in spans} == {run.context.trace_id}
    inside = [
        (workers[span.parent.span_id], span.name, seconds(span))
        for span in spans
        if span is not run and span.parent.span_id in workers
    ]
    assert sorted(inside) == [
        (0, "computing", (0.0, 2.0)),
        (0, "waiting", (2.0, 3.5)),
        (1, "computing", (0.0, 3.0)),
    ]


def test_a_worker_that_comes_back_has_a_span_for_each_life() -> None:
    spans, _ = told(TRACE)
    incarnations = [seconds(span) for span in spans if span.name == "worker" and span.attributes["rank"] == 1]
    assert incarnations == [(0.0, 6.0), (6.0, 7.0)]


def test_what_was_decided_and_who_was_lost_are_events_with_their_reasons() -> None:
    spans, _ = told(TRACE)
    events = [(event.name, event.attributes["reason"]) for span in spans for event in span.events]
    assert sorted(events) == [
        ("ended", "steps"),
        ("lost", "killed"),
        ("returned", "incarnation 2"),
        ("wait", "for worker 1"),
    ]


def test_short_steps_are_sums_of_a_second_and_no_step_is_lost() -> None:
    steps = [
        Span(at=(n + 1) / 100, rank=0, activity="computing", seconds=0.01, steps=1, samples=8) for n in range(1000)
    ]
    spans, _ = told([*steps])
    sums = [span for span in spans if span.name == "computing"]
    assert len(sums) == 10
    assert sum(span.attributes["steps"] for span in sums) == 1000


def test_metrics_are_those_of_prometheus_at_the_moments_of_the_run() -> None:
    _, sent = told(TRACE)
    first, last = metrics(sent[0]), metrics(sent[-1])
    [accuracy] = first["paceline.test_accuracy"].data_points
    assert (accuracy.value, accuracy.time_unix_nano) == (0.25, round((BEGUN + 3.0) * 1e9))
    assert first["paceline.test_loss"].data_points == []  # no number, of which a backend could make nothing
    computing = {
        point.attributes["rank"]: point.value
        for point in last["paceline.seconds"].data_points
        if point.attributes["activity"] == "computing"
    }
    assert computing == {"0": 2.0, "1": 3.0}
    assert last["paceline.seconds"].is_monotonic
    [late] = last["paceline.staleness"].data_points
    assert (late.count, late.sum, late.bucket_counts[0], late.bucket_counts[-1]) == (3, 120, 2, 1)
    assert len(late.bucket_counts) == len(late.explicit_bounds) + 1
    assert [point.value for point in last["paceline.workers"].data_points] == [2]


# ---- over the wire -------------------------------------------------------------------------------------------
class Receiver(BaseHTTPRequestHandler):
    """OTLP over HTTP, as protocol buffers."""

    heard: list[tuple[str, bytes]]
    answer = 200

    def do_POST(self) -> None:
        self.heard.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.answer)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[tuple[str, type[Receiver]]]:
    handler = type("Fresh", (Receiver,), {"heard": []})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", handler
    server.shutdown()
    thread.join()
    server.server_close()


def written(folder: Path) -> str:
    with TraceWriter(folder / "trace.jsonl") as writer:
        for record in TRACE:
            writer.append(record)
    return str(folder)


def names(heard: list[tuple[str, bytes]]) -> tuple[list[str], set[str], set[str]]:
    """Of all spans, of all metrics, and what the run says it is."""
    spans, found, runs = [], set(), set()
    for path, body in heard:
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                runs |= {a.value.string_value for a in resource.resource.attributes if a.key == "paceline.run"}
                spans += [span.name for scope in resource.scope_spans for span in scope.spans]
        else:
            for measured in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                found |= {metric.name for scope in measured.scope_metrics for metric in scope.metrics}
    return spans, found, runs


def test_export_sends_all_of_it_to_a_receiver(
    tmp_path: Path, receiver: tuple[str, type[Receiver]], capsys: pytest.CaptureFixture[str]
) -> None:
    address, handler = receiver
    run = written(tmp_path / "run")
    assert main(["export", run, "--to", "opentelemetry", address]) == 0
    spans, found, runs = names(handler.heard)
    assert sorted(spans) == ["computing", "computing", "evaluation", "run", "waiting", "worker", "worker", "worker"]
    assert {"paceline.steps", "paceline.staleness", "paceline.test_accuracy"} <= found
    assert runs == {run}
    assert capsys.readouterr().err.startswith("paceline: 8 spans and metrics to http://127.0.0.1:")


def test_a_receiver_that_refuses_is_told_of_in_one_line(
    tmp_path: Path, receiver: tuple[str, type[Receiver]], capsys: pytest.CaptureFixture[str]
) -> None:
    address, handler = receiver
    handler.answer = 401
    assert main(["export", written(tmp_path / "run"), "--to", "opentelemetry", address]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("no OTLP receiver is there, or it refuses")


def test_as_a_hook_it_sends_while_the_run_goes_on(
    tmp_path: Path, receiver: tuple[str, type[Receiver]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, handler = receiver
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    words = ["simulate", "--scheme", "bsp", "--workers", "2", "--timing-only", "--step-ms", "200", "--seconds", "12"]
    hook = "paceline.observe.export.opentelemetry:Live"
    assert main([*words, "--hook", hook, "--out", str(tmp_path / "run")]) == 0
    spans, found, _ = names(handler.heard)
    assert spans.count("worker") == 2
    assert spans.count("run") == 1
    assert "paceline.steps" in found
    assert len(handler.heard) > 2  # not only at the end


# ---- without it ----------------------------------------------------------------------------------------------
def test_what_is_not_asked_for_is_not_imported() -> None:
    imports = "paceline.cli.commands.export, paceline.observe.trace.hooks"
    look = f"import sys, {imports}; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0


def test_without_the_sdk_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert main(["export", written(tmp_path / "run"), "--to", "opentelemetry", "http://localhost:4318"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("pip install 'paceline[otel]'")


def test_an_address_that_is_none_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", written(tmp_path / "run"), "--to", "opentelemetry", "nowhere"]) == 2
    assert "http://localhost:4318" in capsys.readouterr().err
