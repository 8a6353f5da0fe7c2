"""Runs with one worker that lies."""

from __future__ import annotations

from dataclasses import replace

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.scheme import names
from paceline.sim.fuzzing import lying_workers
from paceline.sim.fuzzing.fuzz import CALM_S, FuzzPlan, draw, go_on_to_the_end, simulation
from paceline.sim.fuzzing.random_parameters import schemes_of
from paceline.sim.simulation import Simulation


def with_liar(seed: int) -> FuzzPlan | None:
    plan = draw(seed, schemes_of(seed, names()))
    cluster = lying_workers.draw(seed, plan.scheme, plan.cluster, CALM_S)
    return replace(plan, cluster=cluster) if cluster else None


def play(seed: int) -> Simulation:
    plan = with_liar(seed)
    assert plan
    sim = simulation(plan)
    go_on_to_the_end(sim)
    return sim
