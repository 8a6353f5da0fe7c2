"""A worker that is stopped for some seconds, as by SIGSTOP: what the others and the evaluator do meanwhile."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import torch

from paceline.core.trace import Evaluated
from paceline.launch.local.launcher import LocalHost
from paceline.launch.local.train import Silent, make_supervisor
from paceline.observe.trace.trace_file import read_trace
from tests.launch.process_tree import within
from tests.runtime.one_process import config_for, saved


def evaluations(out: Path) -> int:
    return sum(isinstance(record, Evaluated) for record in read_trace(out / "trace.jsonl"))


def wait_for(out: Path, more: int) -> bool:
    """Until the model has been evaluated so often again."""
    wanted = evaluations(out) + more
    return within(30.0, lambda: evaluations(out) >= wanted)


def test_the_model_is_evaluated_while_one_worker_stands_still(host: LocalHost, out: Path) -> None:
    more = {"checkpoint": {"every": 0.2}, "evaluation": {"every": 0.1}, "stop": {"seconds": 60.0}}
    cluster = {"step_ms": 5.0, "dead_after": 60.0}
    config = config_for(out, steps=0, workers=3, servers=0, scheme="gosgd", cluster=cluster, **more)
    supervisor = make_supervisor(config, host.launcher(), Silent())
    went_on: list[bool] = []

    def stop_one() -> None:
        try:
            assert within(30.0, (out / "trace.jsonl").exists)
            assert wait_for(out, 2)
            parties = json.loads((out / "status.json").read_text())["parties"]
            pid = next(p["pid"] for p in parties if p["party"] == "worker 1")
            os.kill(pid, signal.SIGSTOP)
            try:
                went_on.append(wait_for(out, 3))
            finally:
                os.kill(pid, signal.SIGCONT)
            went_on.append(wait_for(out, 2))
        finally:
            supervisor.stop("seen")

    thread = threading.Thread(target=stop_one)
    thread.start()
    summary = supervisor.run()
    thread.join()
    assert went_on == [True, True]
    assert all(torch.isfinite(v).all() for v in saved(config).values())
    assert summary.reason == "seen"
