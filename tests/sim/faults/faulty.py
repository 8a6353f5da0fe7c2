"""Runs with one fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.scheme import make
from paceline.core.trace import MemberChange, Record
from paceline.core.vector import Ghost
from paceline.sim import Cluster, LocalSteps, Simulation
from paceline.sim.cluster.model import Fault, uniform


def simulate(cluster: Cluster, scheme: str = "asp", until: float = 100.5, **more: Any) -> Simulation:
    work = LocalSteps(lambda rank, rng: 1.0)
    return Simulation(make(scheme, more.pop("parameters", {})), Ghost(12), work, cluster=cluster, **more).run(
        until=until
    )


def with_fault(scheme: str = "asp", until: float = 100.5, more: Any = None, **fault: Any) -> Simulation:
    cluster = replace(uniform(3, latency_s=1e-6), faults=(Fault(**fault),), suspect_after_s=10.0)
    return simulate(cluster, scheme, until, **(more or {}))


def news(records: list[Record]) -> list[tuple[str, str]]:
    return [(r.event, r.party) for r in records if isinstance(r, MemberChange)]
