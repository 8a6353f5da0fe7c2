"""Results that are NaN: as drawn, with numbers and without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.errors import ConfigError
from paceline.core.scheme import make
from paceline.core.vector import Ghost
from paceline.sim.cluster.model import Fault, uniform
from paceline.sim.kernel.vectors import NotFinite
from paceline.sim.kernel.workload import LocalSteps
from paceline.sim.simulation import Simulation


def pushed(w0: Any, **fault: Any) -> list[tuple[float, int, Any]]:
    """When the server hears a push of whom, with which gradient, within 20 s; a step takes 1 s."""
    cluster = replace(uniform(2, 1), faults=(Fault(kind="bad-results", workers=(1,), **fault),))
    sim = Simulation(make("asp", {}), w0, LocalSteps(lambda rank, rng: 1.0), cluster=cluster, watched=False)
    heard, on = [], sim.world.servers[0].on

    def listening(now: float, src: int, message: Any) -> Any:
        if hasattr(message, "g"):
            heard.append((sim.now, src, message.g))
        return on(now, src, message if not hasattr(message, "g") else replace(message, g=w0))

    sim.world.servers[0].on = listening
    sim.run(until=20.0)
    return heard


def bad(v: Any) -> bool:
    return isinstance(v, NotFinite) if isinstance(v, Ghost) else not np.isfinite(v).all()


@pytest.mark.parametrize("w0", [Ghost(4), np.ones(4)])
def test_all_results_of_that_worker_are_bad_from_then_on(w0: Any) -> None:
    heard = pushed(w0, at_s=5.5)
    assert {rank for _, rank, g in heard if bad(g)} == {1}
    assert [bad(g) for at, rank, g in heard if rank == 1] == [at > 6.5 for at, rank, _ in heard if rank == 1]


def test_it_ends_and_of_so_many_results_one_is_bad() -> None:
    heard = [(at, bad(g)) for at, rank, g in pushed(Ghost(4), at_s=5.5, for_s=10.0, one_in=2) if rank == 1]
    assert 1 < sum(of for at, of in heard if 6.5 < at < 15.5) < 9
    assert not any(of for at, of in heard if at < 6.5 or at > 17.0)


def test_it_is_for_workers_and_one_in_counts_from_1() -> None:
    with pytest.raises(ConfigError, match="bad-results: one_in must be 1 or more"):
        Fault(kind="bad-results", at_s=0.0, one_in=0, workers=(0,))
    with pytest.raises(ConfigError, match="it is for workers"):
        replace(uniform(2, 1), faults=(Fault(kind="bad-results", at_s=0.0, hosts=("servers",)),))
