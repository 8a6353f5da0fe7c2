"""/metrics as text: what Prometheus' own parser reads in it, and that the board asks for nothing else."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from paceline.core.trace import Applied, Ended, Evaluated, MemberChange, Record, Span
from paceline.observe.export.prometheus import HELP, Metrics

DOCS = Path(__file__).resolve().parents[3] / "docs"
TRACE: list[Record] = [
    MemberChange(at=0.0, party="worker 0", event="joined"),
    MemberChange(at=0.0, party="worker 1", event="joined"),
    Span(at=0.5, rank=0, activity="computing", seconds=0.4, steps=1, samples=32, exchanges=1),
    Span(at=0.6, rank=0, activity="waiting", seconds=0.1),
    Span(at=0.9, rank=0, activity="computing", seconds=0.3, steps=1, samples=32, exchanges=1),
    Applied(at=0.5, shard=0, ranks=(0,), version=1, staleness=0, weight=1.0, samples=32),
    Applied(at=0.6, shard=0, ranks=(1,), version=1, staleness=7, weight=0.0, samples=32),
    Applied(at=0.9, shard=0, ranks=(0, 1), version=2, staleness=120, weight=1.0, samples=64),
    Evaluated(at=0.9, accuracy=0.25, loss=math.nan, samples=64, seconds=0.1),
    MemberChange(at=1.0, party="worker 1", event="lost", reason="killed"),
    Ended(at=1.0, reason="steps"),
]


def exposed(name: str = "runs/a") -> str:
    metrics = Metrics(run=name)
    metrics.add_all(TRACE)
    return metrics.text()


def test_counters_grow_and_gauges_are_the_last() -> None:
    lines = exposed().splitlines()
    assert 'paceline_steps_total{rank="0",run="runs/a"} 2.0' in lines
    assert 'paceline_seconds_total{activity="computing",rank="0",run="runs/a"} 0.7' in lines
    assert 'paceline_updates_total{run="runs/a",shard="0"} 2.0' in lines
    assert 'paceline_contributions_dropped_total{run="runs/a",shard="0"} 1.0' in lines
    assert 'paceline_workers{run="runs/a"} 1.0' in lines
    assert 'paceline_test_loss{run="runs/a"} NaN' in lines
    assert 'paceline_run_seconds{run="runs/a"} 1.0' in lines


def test_a_worker_that_comes_back_is_one_of_the_workers_again() -> None:
    metrics = Metrics()
    metrics.add_all(TRACE)
    for event in ("lost", "returned"):  # lost once more, before it was back
        metrics.add(MemberChange(at=2.0, party="worker 1", event=event))
    assert "paceline_workers 2.0" in metrics.text().splitlines()


def test_the_histogram_counts_every_contribution_and_its_buckets_hold_one_another() -> None:
    counts = [int(n) for n in re.findall(r"paceline_staleness_bucket\{.*\} (\d+)\.0", exposed())]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (1, 4)
    assert 'paceline_staleness_sum{run="runs/a"} 247.0' in exposed()


def test_prometheus_own_parser_reads_it_back_whatever_the_names() -> None:
    name = 'a "b"\\n\nc'
    families = {f.name: f for f in text_string_to_metric_families(exposed(name))}
    assert families["paceline_staleness"].type == "histogram"
    assert families["paceline_samples"].type == "counter"
    assert {s.labels["run"] for f in families.values() for s in f.samples} == {name}
    assert all(f.documentation for f in families.values())


@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool here: see make metrics-test")
def test_promtool_finds_nothing_to_complain_of() -> None:
    done = subprocess.run(["promtool", "check", "metrics"], input=exposed('a "b"'), capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_board_asks_for_metrics_that_there_are() -> None:
    board = json.loads((DOCS / "grafana.json").read_text())
    asked = set(re.findall(r"paceline_(\w+)", " ".join(t["expr"] for p in board["panels"] for t in p["targets"])))
    assert len(asked) > 8
    assert asked <= set(HELP) | {"staleness_bucket"}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
