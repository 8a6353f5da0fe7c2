"""A run as the logs of ESync's workers, which the reader of those logs reads again."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.compat.esync.log_reader import esync_run
from paceline.compat.esync.log_writer import write
from paceline.core.trace import Evaluated, Record, Span
from paceline.observe.runs.run_folders import RunFolder
from tests.compat.esync.test_log_reader import esync_log, the_run


def spans(rank: int) -> Iterator[Record]:
    """Three steps, an exchange, one step, an exchange that nothing follows."""
    for step in range(3):
        yield Span(at=step + 1.0, rank=rank, activity="computing", seconds=1.0, steps=1, samples=32)
    yield Span(at=3.5, rank=rank, activity="waiting", seconds=0.5)
    yield Span(at=4.0, rank=rank, activity="communicating", seconds=0.5)
    yield Span(at=5.0, rank=rank, activity="computing", seconds=1.0, steps=1, samples=32, exchanges=1)
    yield Span(at=6.0, rank=rank, activity="communicating", seconds=1.0)


def a_run(tmp_path: Path, scheme: str) -> RunFolder:
    """Two workers on the CPU and one on GPU 1; evaluated in the first round and after the last."""
    esync_log(tmp_path / "made" / "w0", rounds=1, steps=1, accuracy=None)
    summary = the_run(tmp_path / "made").summary
    workers = tuple(
        dataclasses.replace(summary.workers[0], rank=rank, device=device)
        for rank, device in enumerate(("cpu", "cpu", "cuda:1"))
    )
    judged = [Evaluated(at=at, accuracy=a, loss=0.0, samples=0, seconds=0.25) for at, a in ((3.9, 0.5), (7.0, 0.75))]
    records = [*(r for rank in range(3) for r in spans(rank)), *judged]
    return RunFolder(
        path=tmp_path, summary=dataclasses.replace(summary, scheme=scheme, workers=workers), records=lambda: records
    )


def logged(folder: Path, number: int) -> dict[str, Any]:
    log: dict[str, Any] = json.loads((folder / f"iter-{number}.txt").read_text())
    return log


def test_a_round_has_an_entry_for_each_step_and_one_for_the_exchange(tmp_path: Path) -> None:
    old = tmp_path / "logs" / "cpu" / "iter-9.txt"
    old.parent.mkdir(parents=True)
    old.write_text("of an earlier run")
    assert write(a_run(tmp_path, "esync"), tmp_path / "logs") == 6
    assert sorted(p.name for p in (tmp_path / "logs").iterdir()) == ["cpu", "cpu-1", "gpu1"]
    assert not old.exists()
    first, last = (logged(tmp_path / "logs" / "cpu", n) for n in (1, 2))
    step = {"check ready": 0.0, "get_batch": 0.0, "forward and backward": 1.0, "local update": 0.0}
    exchange = {"check ready": 0.0, "global update": 1.0, "evaluation": 0.25}
    assert first["time"] == {"0": step, "1": step, "2": step, "3": exchange}
    assert (first["num_iters"], first["num_samples"], first["total_time"], first["accuracy"]) == (1, 96, 4.0, 0.5)
    assert last["accuracy"] == 0.75
    assert "accuracy" not in logged(tmp_path / "logs" / "gpu1", 1)  # rank 0 evaluates


def test_in_the_other_modes_a_round_has_one_entry(tmp_path: Path) -> None:
    write(a_run(tmp_path, "bsp"), tmp_path / "logs")
    assert logged(tmp_path / "logs" / "cpu-1", 2)["time"] == {
        "0": {"get_batch": 0.0, "forward and backward": 1.0, "global aggregate": 1.0}
    }


def test_what_is_written_is_read_again_as_the_same_run(tmp_path: Path) -> None:
    write(a_run(tmp_path, "esync"), tmp_path / "resnet18-v1" / "esync")
    again = esync_run(tmp_path / "resnet18-v1" / "esync")
    assert again is not None
    s = again.summary
    assert (s.scheme, s.model, s.samples, s.test_accuracy, s.seconds) == ("esync", "resnet18-v1", 384, 0.75, 6.0)
    assert [w.steps for w in s.workers] == [4, 4, 4]
    assert s.workers[0].seconds_computing == pytest.approx(4.0)
    assert s.bytes_up == s.bytes_down == 6 * 4 * 11_175_370  # six exchanges
