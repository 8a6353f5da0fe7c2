"""What a silent evaluator does, in words."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from paceline.cli.commands import status
from paceline.core.coordination.control_messages import Hello
from paceline.core.coordination.party import EVALUATOR
from paceline.core.trace import Evaluated
from paceline.runtime.run_folder.evaluation_times import EvaluationTimes
from paceline.runtime.run_folder.status_file import StatusFile, read_status

pytestmark = pytest.mark.skipif(not Path("/proc/1/stat").exists(), reason="reads /proc")


def test_status_says_what_a_silent_evaluator_is_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    standing = StatusFile(tmp_path, "bsp", evaluations=EvaluationTimes(60.0, to_target=False))
    standing.joined(EVALUATOR, Hello(address="a", pid=1, host="h", device=""))

    def line(at: float) -> str:
        nonlocal now
        now = at
        standing.write("training", at_once=True)
        return status.text(tmp_path, read_status(tmp_path), 0.0)[-1]

    assert line(1000.0) == "the evaluator judges the first model, for 0.00 s"
    now = 1004.0
    standing.recorded(Evaluated(at=4.0, accuracy=0.5, loss=1.0, samples=10, seconds=2.0))
    waits, last = "the evaluator waits for the next evaluation, in 18.0 s", "accuracy 0.500"
    assert line(1044.0) == f"{waits}; the last was 40.0 s ago: {last}"
    assert line(1064.0) == f"the evaluator is judging since about 2.0 s; the last was 60.0 s ago: {last}"
    standing.write("over", at_once=True)
    assert not any(line.startswith("the ") for line in status.text(tmp_path, read_status(tmp_path), 0.0))
