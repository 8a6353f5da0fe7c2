"""Logs as ESync's workers left them, read as runs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from paceline.compat.esync.log_reader import esync_run
from paceline.core.errors import PacelineError
from paceline.core.trace import Evaluated, Span
from paceline.observe.runs.run_folders import RunFolder, find, groups

STEP = {"check ready": 0.1, "get_batch": 0.2, "forward and backward": 1.0, "local update": 0.2}


def esync_log(folder: Path, rounds: int, steps: int, accuracy: float | None) -> None:
    """Each step takes 1.5 s; each exchange 4 s, and 1 s more to evaluate."""
    folder.mkdir(parents=True)
    for n in range(1, rounds + 1):
        last = {"check ready": 0.0, "global update": 4.0} | ({"evaluation": 1.0} if accuracy else {})
        log = {
            "num_iters": n,
            "time": {str(i): STEP for i in range(steps)} | {str(steps): last},
            "num_samples": 32 * steps,
            "total_time": n * (1.5 * steps + 4.0),
        } | ({"accuracy": accuracy * n} if accuracy else {})
        (folder / f"iter-{n}.txt").write_text(json.dumps(log))


@pytest.fixture
def esync(tmp_path: Path) -> Path:
    esync_log(tmp_path / "esync" / "cloud1" / "cpu", rounds=3, steps=2, accuracy=0.2)
    esync_log(tmp_path / "esync" / "cloud1" / "gpu0", rounds=3, steps=10, accuracy=None)
    return tmp_path


def the_run(path: Path) -> RunFolder:
    run = esync_run(path)
    assert run is not None
    return run


def test_steps_rounds_and_seconds_are_counted_by_worker(esync: Path) -> None:
    summary = the_run(esync / "esync").summary
    assert summary.scheme == "esync"
    cpu, gpu = summary.workers
    assert (cpu.device, cpu.steps, cpu.exchanges, cpu.samples) == ("cloud1/cpu", 6, 3, 192)
    assert (gpu.device, gpu.steps, gpu.exchanges, gpu.samples) == ("cloud1/gpu0", 30, 3, 960)
    assert cpu.seconds_computing == pytest.approx(9.0)
    assert cpu.seconds_communicating == pytest.approx(12.0)
    assert summary.seconds == pytest.approx(3 * 19.0)
    assert summary.samples_per_second == pytest.approx(1152 / 57.0)
    assert summary.test_accuracy == pytest.approx(0.6)


def test_the_records_have_accuracy_and_spans_in_the_order_of_time(esync: Path) -> None:
    records = list(the_run(esync / "esync").records())
    assert [r.at for r in records] == sorted(r.at for r in records)
    evaluated = [r for r in records if isinstance(r, Evaluated)]
    assert [r.accuracy for r in evaluated] == pytest.approx([0.2, 0.4, 0.6])
    assert all(math.isnan(r.loss) for r in evaluated)
    # at 19 s: of the cpu, which takes 7 s a round, two rounds; of the gpu, which takes 19 s, one
    assert [r.samples for r in evaluated] == [64, 128, 192 + 320]
    assert sum(r.steps for r in records if isinstance(r, Span)) == 36


def test_reading_ends_at_the_first_gap(esync: Path) -> None:
    (esync / "esync" / "cloud1" / "cpu" / "iter-2.txt").unlink()
    assert the_run(esync / "esync").summary.workers[0].exchanges == 1


def test_modes_are_runs_of_their_own_and_data_by_class_is_told(esync: Path) -> None:
    esync_log(esync / "esync-niid" / "cpu", rounds=1, steps=1, accuracy=0.1)
    esync_log(esync / "sync" / "cpu", rounds=1, steps=1, accuracy=0.1)
    runs, notes = find([str(esync)], others=[esync_run])
    assert [(r.summary.scheme, r.shares) for r in runs] == [
        ("esync", "uniform"),
        ("esync", "class"),
        ("bsp", "uniform"),
    ]
    assert not notes
    assert len(groups(runs)) == 3


def test_a_file_that_is_no_log_is_named(esync: Path) -> None:
    (esync / "esync" / "cloud1" / "cpu" / "iter-2.txt").write_text('{"num_iters": 2}')
    with pytest.raises(PacelineError, match=r"iter-2\.txt: not a log of ESync"):
        esync_run(esync / "esync")
