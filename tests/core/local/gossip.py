"""A worker of gossip, driven by hand."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from paceline.core.local.push_sum import Holder, Share
from paceline.core.role import RoleContext
from paceline.core.scheme import make
from paceline.sim import LocalSteps, Simulation


def worker(me: int = 0, workers: int = 3, **parameters: Any) -> Holder:
    place = RoleContext(me=me, workers=tuple(range(workers)), w=np.zeros(1), update=lambda w, g, n: w - g)
    role = make("gosgd", parameters).worker(0)(make("gosgd", parameters), place)
    assert isinstance(role, Holder)
    return role


def share(w: float, weight: float) -> Share:
    return Share(w=np.array([w]), weight=weight)


def hear(role: Holder, src: int, message: Any) -> list[Any]:
    return list(role.on(0.0, src, message))


def assert_that_kills_change_nothing_of_the_mean(scheme: str, seed: int, **parameters: Any) -> None:
    """Without gradients the mean of all models stays what it was, whoever is restarted, at whatever yield."""
    work = LocalSteps(lambda rank, rng: rng.uniform(0.5, 1.5), lambda rank, w: w * 0.0)
    sim = Simulation(make(scheme, parameters), np.zeros(3), work, workers=4, servers=0, seed=seed)
    for rank in range(4):
        sim.worker(rank).w = np.zeros(3) + rank
    random = Random(seed)
    for _ in range(40):
        sim.run(max_events=sim.events + random.randrange(1, 30))
        sim.restart(random.randrange(4))
    sim.run(until=sim.now + 600)
    assert [sim.worker(rank).w for rank in range(4)] == [pytest.approx([1.5] * 3)] * 4
