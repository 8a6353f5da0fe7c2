"""Cluster files: what they may say, what is refused and how, and that the ready ones run."""

from __future__ import annotations

import itertools

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.errors import ConfigError
from paceline.core.scheme import make
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps, Simulation, examples, load, uniform


@pytest.mark.parametrize(("name", "scheme"), list(itertools.product(examples(), ["bsp", "asp", "esync"])))
def test_every_example_runs(name: str, scheme: str) -> None:
    cluster = load(name)
    work = LocalSteps(lambda rank, rng: cluster.step_s)
    sim = Simulation(make(scheme, {}), Ghost(10_000), work, cluster=cluster, watched=cluster.workers < 100)
    sim.run(max_events=(2 * cluster.servers + 2) * cluster.workers + 2000)
    assert sum(sim.steps) > 0


def test_a_uniform_cluster_may_have_slow_workers() -> None:
    cluster = uniform(3, factors=(1.0, 2.0, 4.0))
    sim = Simulation(make("asp", {}), Ghost(9), LocalSteps(lambda rank, rng: 1.0), cluster=cluster).run(until=40.5)
    assert sim.steps == [40, 20, 10]
    with pytest.raises(ConfigError, match="2 factors for 3 workers"):
        uniform(3, factors=(1.0, 2.0))
