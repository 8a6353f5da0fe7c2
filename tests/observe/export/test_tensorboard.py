"""Event files, read back by TensorBoard's own loader."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.cli.main import main
from paceline.core.trace import Applied, Span
from paceline.observe.export.tensorboard import points
from paceline.observe.trace.trace_file import TraceWriter
from tests.observe.fake_runs import evaluations

SPANS = [
    Span(at=0.6, rank=0, activity="computing", seconds=0.3, steps=1, samples=32),
    Span(at=0.9, rank=0, activity="waiting", seconds=0.1),
    Span(at=1.5, rank=0, activity="computing", seconds=0.5, steps=1, samples=16),
]


def test_the_points_are_by_samples_for_accuracy_and_by_time_for_the_rest() -> None:
    late = [Applied(at=0.5, shard=s, ranks=(0, 1), version=1, staleness=3, weight=1.0, samples=1) for s in (0, 1)]
    found = list(points([*evaluations(count=2), *SPANS, *late]))
    assert [(tag, step) for tag, _, step, _ in found if tag == "test/accuracy"] == [
        ("test/accuracy", 0),
        ("test/accuracy", 10_000),
    ]
    assert [p for p in found if p[0] == "train/samples_per_second"] == [
        ("train/samples_per_second", 32.0, 1000, 1.0),
        ("train/samples_per_second", 16.0, 2000, 2.0),
    ]
    assert ("train/staleness", 3.0, 1000, 1.0) in found
    assert ("worker 0/computing", pytest.approx(0.75), 1000, 1.0) in found


def trace(folder: Path) -> str:
    with TraceWriter(folder / "trace.jsonl") as writer:
        for record in [*evaluations(), *SPANS]:
            writer.append(record)
    return str(folder)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboards_loader_reads_what_was_written(tmp_path: Path) -> None:
    module = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    assert main(["export", trace(tmp_path / "run"), "--to", "tensorboard", str(tmp_path / "tb")]) == 0
    [file] = (tmp_path / "tb").iterdir()
    values = [
        (value.tag, event.step, value.tensor.float_val[0] if value.HasField("tensor") else value.simple_value)
        for event in module.EventFileLoader(str(file)).Load()
        for value in event.summary.value
    ]
    accuracies = [(step, number) for tag, step, number in values if tag == "test/accuracy"]
    assert accuracies == [(e.samples, pytest.approx(e.accuracy)) for e in evaluations()]


def test_without_tensorboard_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorboard.compat.proto.event_pb2", None)
    assert main(["export", trace(tmp_path / "run"), "--to", "tensorboard", str(tmp_path / "tb")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("pip install tensorboard")
