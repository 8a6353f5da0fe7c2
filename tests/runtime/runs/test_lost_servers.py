"""A server is really killed in the middle of a run, and the model is what it would have been."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from paceline.runtime.replay.party_recordings import party_recordings
from paceline.runtime.replay.run_replay import coordinator_recording
from tests.launch.process_tree import comm, descendants, within
from tests.runtime.conftest import Runner
from tests.runtime.one_process import assert_same, config_for, one_process, saved

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")

STEPS = 60


def kill_once(trace: Path, name: str, applied: int) -> threading.Thread:
    """As soon as the trace tells of so many updates."""

    def incarnation() -> None:
        within(60.0, lambda: trace.exists() and trace.read_text().count('"applied"') >= applied)
        pids = [pid for pid in descendants(os.getpid()) if comm(pid) == f"pace {name}"]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=incarnation, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("optimizer", [{"name": "sgd", "lr": 0.05, "momentum": 0.9}, {"name": "adam", "lr": 0.002}])
def test_with_copies_every_update_counts_once(processes: Runner, out: Path, optimizer: dict[str, Any]) -> None:
    config = config_for(
        out,
        steps=STEPS,
        servers=2,
        optimizer=optimizer,
        cluster={"ack": "replica", "snapshot_every": 0.0, "step_ms": 50.0},
        checkpoint={"every": 0.0},
    )
    config = dataclasses.replace(config, run=dataclasses.replace(config.run, record=True))
    killer = kill_once(out / "trace.jsonl", "server 1", 20)
    summary = processes(config)
    killer.join()
    assert '"replaced"' in (out / "trace.jsonl").read_text(), "it was killed too late"
    assert [worker.steps for worker in summary.workers] == [STEPS] * 2
    assert_same(saved(config), one_process(config, STEPS))
    replayed = list(coordinator_recording(out).replay())
    assert [one.recorded.what for one in replayed if not one.equal] == []
    assert ["lost", "server 1"] in [one.recorded.what[:2] for one in replayed]
    parties = {party.title: list(party.replay()) for party in party_recordings(out)}
    assert {"server 0", "server 1", "server 1, incarnation 1", "worker 0", "worker 1"} <= parties.keys()
    assert [one.recorded.what for replayed in parties.values() for one in replayed if not one.equal] == []
    assert "restore.became" in [one.recorded.what[0] for one in parties["server 1, incarnation 1"]]
