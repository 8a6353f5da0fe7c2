"""Evaluations in virtual time."""

from __future__ import annotations

import json
from pathlib import Path

from paceline.core.trace import Evaluated
from paceline.launch.local.train import Silent
from paceline.observe.trace.trace_file import read_trace
from paceline.runtime.simulated.simulated_run import VirtualRun
from tests.runtime.simulated.virtual_runs import setting


def test_the_target_ends_a_run_and_evaluations_have_virtual_times(tmp_path: Path) -> None:
    stop = {"target_accuracy": 0.7}
    summary = VirtualRun(setting("asp", stop=stop, out=str(tmp_path / "run")), Silent()).run()
    assert summary.reason == "target accuracy"
    seen = [r for r in read_trace(tmp_path / "run" / "trace.jsonl") if isinstance(r, Evaluated)]
    assert [r.at for r in seen] == sorted(r.at for r in seen)
    reached = next(n for n, r in enumerate(seen) if r.accuracy >= 0.7)
    assert seen[reached].at == summary.seconds == summary.seconds_to_target
    assert [r.at for r in seen[reached + 1 :]] == [summary.seconds], "the model after the last exchange"
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["driver"] == "sim"
