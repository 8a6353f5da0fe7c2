"""A worker that lies costs itself alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.local.push_sum import Share
from paceline.core.samples.sample_leases import APPLIED, Leases
from paceline.core.scheme import make
from paceline.core.validation.bounds import ROUNDS_AHEAD, PlanLimits
from paceline.sim.cluster.model import Fault, uniform
from paceline.sim.faults.lying_worker import Lies
from paceline.sim.kernel.workload import LocalSteps
from paceline.sim.simulation import Simulation


def test_samples_of_others_are_not_settled_by_whoever_names_them() -> None:
    leases = Leases(20, 10)
    assert leases.take(0, 0) == (0, 0, 10)
    assert leases.take(1, 0) == (0, 10, 20)
    with pytest.raises(ValueError, match="not all given to worker 0"):
        leases.settled(0, APPLIED, ((0, 0, 20),))
    assert leases.account(0.0).done == 10
    leases.settled(1, APPLIED, ((0, 10, 20),))
    assert leases.epochs == 1


def test_a_phase_that_there_is_not_ends_no_run() -> None:
    cluster = replace(uniform(3, 1), faults=(Fault(kind="lie", at_s=0.0, workers=(0,)),))
    scheme = make("hybrid", {"phases": "bsp until 4 steps; asp", "epoch_samples": 40})
    sim = Simulation(scheme, np.zeros(4), LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w), cluster=cluster)
    entered = next(kind for kind in [type(m) for m in _asked(sim)] if kind.__name__ == "PhaseEntered")
    assert sim.coordinator is not None
    assert list(sim.coordinator.on(0.0, 0, entered(phase=2**40)))
    assert list(sim.coordinator.on(0.0, 1, entered(phase=0)))


def test_one_liar_in_three_names_rounds_far_ahead_within_what_a_message_may_say() -> None:
    share = Share(w=np.zeros(4), weight=0.25, round=7)
    far = 0
    for seed in range(60):
        lies = Lies(seed, PlanLimits(workers=4))
        lies.begin(1, 10.0, 1)
        rounds = [lies.parts(0.0, 1, [share])[0].round for _ in range(20)]
        far += any(1000 < round - 7 <= ROUNDS_AHEAD for round in rounds)
    assert 12 <= far <= 30


def _asked(sim: Simulation) -> Sequence[Any]:
    asked: list[Any] = []
    on = sim.world.coordinator.on  # type: ignore[union-attr]
    sim.world.coordinator.on = lambda now, src, message: (asked.append(message), on(now, src, message))[1]  # type: ignore
    sim.run(until=0.5)
    return asked
