"""A run becomes a log that MXNet's parse_log.py reads."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path

from paceline.compat.mxnet.scripts.speedometer import write
from paceline.core.trace import Evaluated, Record, Span
from paceline.observe.runs.run_folders import RunFolder
from tests.observe.fake_runs import summary

PARSED = {  # of tools/parse_log.py, with its --metric-names accuracy
    "train": re.compile(r".*Epoch\[(\d+)\] Train-accuracy.*=([.\d]+)"),
    "val": re.compile(r".*Epoch\[(\d+)\] Validation-accuracy.*=([.\d]+)"),
    "time": re.compile(r".*Epoch\[(\d+)\] Time.*=([.\d]+)"),
}


def step(at: float, rank: int, seconds: float = 1.0) -> Span:
    return Span(at=at, rank=rank, activity="computing", seconds=seconds, steps=1, samples=10)


def lines_of(records: Sequence[Record], *, epochs: float = 0.0, every: int = 2, samples: int = 0) -> list[str]:
    """What is written, without its times."""
    ended = summary(samples=samples, reason="epochs")
    run = RunFolder(path=Path("run"), summary=ended, facts={"stop.epochs": epochs}, records=lambda: records)
    out = io.StringIO()
    count = write(out, run, 0.0, every)
    lines = out.getvalue().splitlines()
    assert len(lines) == count
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} Node", line) for line in lines)
    return [line.split(" ", 2)[2] for line in lines]


def test_a_line_has_the_speed_of_one_worker_since_its_last_one() -> None:
    steps = [step(1, 0), step(2, 0), step(3, 1), step(4, 0), step(6, 0), step(9, 1)]
    assert [line for line in lines_of(steps) if "Speed" in line] == [
        "Node[0] Epoch[0] Batch [0-2]\tSpeed: 10.00 samples/sec",
        "Node[0] Epoch[0] Batch [2-4]\tSpeed: 5.00 samples/sec",  # it waited
        "Node[1] Epoch[0] Batch [0-2]\tSpeed: 2.22 samples/sec",
    ]


def test_an_epoch_ends_when_all_together_have_trained_it_and_has_its_last_evaluation() -> None:
    judged = [
        Evaluated(at=at, accuracy=accuracy, loss=1.0, samples=samples, seconds=0.1)
        for at, accuracy, samples in ((0, 0.1, 0), (1, 0.3, 20), (3, 0.5, 40), (5, 0.6, 60), (9, 0.75, 80))
    ]
    steps = [step(1, 0), step(2, 1), step(3, 0), step(4, 0), step(5, 0), step(6, 1), step(7, 0), step(8, 0)]
    lines = lines_of([*steps, *judged], epochs=2, every=3, samples=80)
    assert lines == [
        "Node[0] Epoch[0] Batch [0-3]\tSpeed: 7.50 samples/sec",
        "Node[0] Epoch[0] Time cost=4.000",
        "Node[0] Epoch[0] Validation-accuracy=0.500000",
        "Node[0] Epoch[1] Batch [0-3]\tSpeed: 7.50 samples/sec",
        "Node[0] Epoch[1] Time cost=4.000",
        "Node[0] Epoch[1] Validation-accuracy=0.750000",
    ]
    assert [len(list(filter(pattern.match, lines))) for pattern in PARSED.values()] == [0, 2, 2]


def test_without_a_rule_of_epochs_all_is_the_first_one() -> None:
    assert lines_of([step(1, 0), step(2, 0)], every=20) == ["Node[0] Epoch[0] Time cost=2.000"]
    assert lines_of([]) == []
