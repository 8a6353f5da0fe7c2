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

STEPS, KILLS = 100, 2


def kill(out: Path, in_time: list[bool]) -> None:
    """The coordinator that `status.json` names, and then the one in its place, each once there are more updates."""
    killed: set[int] = set()

    def alive() -> set[int]:
        try:
            parties = json.loads((out / "status.json").read_text())["parties"]
        except (OSError, ValueError, KeyError):
            return set()
        return {party["pid"] for party in parties if party["party"] == "coordinator"} - killed

    trace = out / "trace.jsonl"

    def updates() -> int:
        return trace.read_text().count('"applied"') if trace.exists() else 0

    for _ in range(KILLS):
        before = updates()
        in_time.append(within(60.0, lambda: updates() >= before + 20 and bool(alive())))  # noqa: B023
        for pid in alive():
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)


def test_the_model_is_what_it_would_have_been(processes: Runner, out: Path) -> None:
    config = config_for(
        out, steps=STEPS, servers=2, cluster={"step_ms": 60.0, "coordinator": "process"}, checkpoint={"every": 0.0}
    )
    in_time: list[bool] = []
    killer = threading.Thread(target=kill, args=(out, in_time), daemon=True)
    killer.start()
    summary = processes(config)
    killer.join()
    assert in_time == [True] * KILLS
    assert [(fault.event, fault.party) for fault in summary.faults] == [("lost", "coordinator")] * KILLS
    assert (out / "trace.jsonl").read_text().count('"replaced"') == KILLS
    assert [worker.steps for worker in summary.workers] == [STEPS] * 2
    assert_same(saved(config), one_process(config, STEPS))
