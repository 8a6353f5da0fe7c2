"""The coordinator is really killed in the middle of a run, and the model is what it would have been."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from tests.job.conftest import Runner
from tests.job.reference import assert_same, config_for, one_process, saved
from tests.launch.processes import within

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="forks")

STEPS, KILLS = 60, 2


def kill(out: Path) -> None:
    """The coordinator that `status.json` names, and then the one in its place, once there are updates."""
    killed: set[int] = set()

    def alive() -> set[int]:
        try:
            parties = json.loads((out / "status.json").read_text())["parties"]
        except (OSError, ValueError, KeyError):
            return set()
        return {party["pid"] for party in parties if party["party"] == "coordinator"} - killed

    trace = out / "trace.jsonl"
    within(60.0, lambda: trace.exists() and trace.read_text().count('"applied"') >= 10)
    for _ in range(KILLS):
        within(60.0, lambda: bool(alive()))
        for pid in alive():
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)


def test_the_model_is_what_it_would_have_been(processes: Runner, out: Path) -> None:
    config = config_for(
        out, steps=STEPS, servers=2, cluster={"step_ms": 60.0, "coordinator": "process"}, checkpoint={"every": 0.0}
    )
    killer = threading.Thread(target=kill, args=(out,), daemon=True)
    killer.start()
    summary = processes(config)
    killer.join()
    assert [(fault.event, fault.party) for fault in summary.faults] == [("lost", "coordinator")] * KILLS
    assert (out / "trace.jsonl").read_text().count('"replaced"') == KILLS
    assert [worker.steps for worker in summary.workers] == [STEPS] * 2
    assert_same(saved(config), one_process(config, STEPS))
