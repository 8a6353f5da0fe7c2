"""Runs with one worker that lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.scheme import names
from paceline.sim.fuzzing.fuzz import CALM_S, FuzzPlan, draw, go_on_to_the_end, simulation
from paceline.sim.fuzzing.random_parameters import NEWER, schemes_of
from paceline.sim.fuzzing.runs import lying_workers
from paceline.sim.simulation import Simulation

NOTED = [name for name in names() if name not in NEWER]


def with_liar(seed: int, schemes: Sequence[str] = NOTED) -> FuzzPlan | None:
    plan = draw(seed, schemes_of(seed, schemes))
    cluster = lying_workers.draw(seed, plan.scheme, plan.cluster, CALM_S)
    return replace(plan, cluster=cluster) if cluster else None


def play(seed: int, schemes: Sequence[str] = NOTED) -> Simulation:
    plan = with_liar(seed, schemes)
    assert plan
    sim = simulation(plan)
    go_on_to_the_end(sim)
    return sim
