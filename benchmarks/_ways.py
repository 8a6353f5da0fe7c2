"""The three ways of running, as the laws compare them: threads on a hub, virtual time, real processes of a script."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from paceline.config import Config
from paceline.core.coordination import party
from paceline.launch.local.train import Silent
from paceline.live.net.inprocess_transport import Hub
from paceline.observe.runs.summary import Summary
from paceline.runtime.simulated.setup import SimulationSetup, cluster_of
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.runtime.supervisor.supervisor import RunSupervisor
from paceline.runtime.thread_launcher import ThreadLauncher
from paceline.sim.cluster.model import NetworkSpec


def train(config: Config) -> Summary:
    """Trains as `paceline train` does, with threads for processes."""
    hub = Hub()
    transport = lambda token, failed: hub.transport(party.COORDINATOR, failed)  # noqa: E731
    return RunSupervisor(config, transport, ThreadLauncher(hub), Silent()).run()


def simulate(config: Config) -> Summary:
    """Trains in virtual time, as `paceline simulate` does."""
    setup = SimulationSetup(config=config, cluster=cluster_of(config, NetworkSpec(latency_s=1e-3), lambda: 0.01))
    return VirtualRun(setup, Silent()).run()


def launch(script: list[Any], workers: int, servers: int, out: Path, *flags: Any) -> int:
    """Starts a script under `paceline launch`; returns the samples counted."""
    command = [sys.executable, "-m", "paceline", "launch", "-n", workers, "-s", servers, "--out", out, *flags]
    done = subprocess.run(
        [str(part) for part in (*command, sys.executable, *script)], capture_output=True, text=True, timeout=120
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
    return int(json.loads((out / "summary.json").read_text())["samples"])
