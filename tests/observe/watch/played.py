"""The state of the page after a simulated run."""

from __future__ import annotations

import paceline.schemes  # noqa: F401  enters the catalogue
from paceline.core.scheme import make
from paceline.core.vector import Ghost
from paceline.observe.watch.state import PageState
from paceline.sim import LocalSteps, Simulation
from paceline.sim.cluster.model import Cluster, Device, Host

STEP_S = 0.02


BATCH = 32


def simulated(scheme: str, factors: tuple[float, ...], *, seconds: float = 8.0, jitter: float = 0.0) -> PageState:
    hosts = [Host(name=f"h{n}", devices=(Device(factor=f, jitter=jitter),)) for n, f in enumerate(factors)]
    return played(scheme, Cluster(hosts=(*hosts, Host(name="s", servers=1)), step_s=STEP_S), seconds)


def played(scheme: str, cluster: Cluster, seconds: float) -> PageState:
    state = PageState(cluster.workers)
    work = LocalSteps(lambda rank, rng: cluster.step_s, samples=lambda rank: BATCH)
    Simulation(make(scheme, {}), Ghost(10_000), work, cluster=cluster, trace=state.add, watched=False).run(
        until=seconds
    )
    return state
