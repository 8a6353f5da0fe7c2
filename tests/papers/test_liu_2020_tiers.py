"""Liu et al., Client-Edge-Cloud Hierarchical Federated Learning, ICC 2020."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.core.scheme import make
from paceline.sim import LocalSteps, Simulation

KAPPA_1, KAPPA_2, ROUNDS = 3, 2, 4
LR = 0.1
GOALS = np.random.default_rng(5).normal(size=(6, 4))
SAMPLES = (4, 1, 3, 2, 2, 8)
EDGES = ((0, 1, 2), (3, 4, 5))


def mean(weights: dict[int, np.ndarray], ranks: tuple[int, ...]) -> np.ndarray:
    return sum(weights[rank] * SAMPLES[rank] for rank in ranks) / sum(SAMPLES[rank] for rank in ranks)


def hierfavg() -> np.ndarray:
    """Algorithm 1: kappa_1 local updates between averages at the edge, kappa_2 of these between averages at the
    cloud, each weighted by samples."""
    w = {rank: np.zeros(4) for rank in range(6)}
    for k in range(1, ROUNDS * KAPPA_1 * KAPPA_2 + 1):
        w = {rank: w[rank] - LR * (w[rank] - GOALS[rank]) for rank in w}
        if k % KAPPA_1 == 0:
            w = {rank: mean(w, edge) for edge in EDGES for rank in edge}
        if k % (KAPPA_1 * KAPPA_2) == 0:
            w = dict.fromkeys(w, mean(w, tuple(range(6))))
    return w[0]


def test_local_sgd_inside_and_averages_between_are_hierarchical_federated_averaging() -> None:
    inner, outer = f"localsgd(tau={KAPPA_1})", f"bsp(payload=delta, steps={KAPPA_2})"
    groups = ";".join(",".join(map(str, edge)) for edge in EDGES)
    work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w - GOALS[rank], lr=LR, samples=SAMPLES.__getitem__)
    made = make("tiers", {"inner": inner, "outer": outer, "groups": groups})
    sim = Simulation(made, np.zeros(4), work, workers=6, servers=2)
    sim.run(until=ROUNDS * KAPPA_1 * KAPPA_2 + 0.9)
    assert sim.server(0).version == ROUNDS  # type: ignore[attr-defined]
    assert sim.model() == pytest.approx(hierfavg(), rel=1e-9)
