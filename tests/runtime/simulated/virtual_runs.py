"""Short runs in virtual time."""

from __future__ import annotations

from typing import Any

from paceline import config as configuration
from paceline.launch.local.train import Silent
from paceline.observe.runs.summary import Summary
from paceline.runtime.simulated.setup import SimulationSetup, cluster_of
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.sim import Cluster
from paceline.sim.cluster.model import NetworkSpec

FAST = NetworkSpec(latency_s=1e-4, bandwidth_gbps=10.0)


def setting(
    scheme: str = "bsp", timing_only: bool = False, cluster: Cluster | None = None, **more: Any
) -> SimulationSetup:
    values: dict[str, Any] = {
        "run": {"scheme": scheme, "out": more.pop("out", "")},
        "cluster": {"workers": 3, "slowdown": [1, 2, 4], "step_ms": 10, **more.pop("on", {})},
        "model": {"name": "mlp", "width": 0.25},
        "optimizer": {"lr": 0.1},
        **more,
    }
    config = configuration.build(values)
    return SimulationSetup(
        config=config, cluster=cluster or cluster_of(config, FAST, lambda: 0.0), timing_only=timing_only
    )


def run(scheme: str = "bsp", **more: Any) -> Summary:
    return VirtualRun(setting(scheme, **more), Silent()).run(leave=False)
