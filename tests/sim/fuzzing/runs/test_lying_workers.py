"""A worker that lies costs itself, and nobody else (`sim/faults/lying_worker.py`, `lying_workers.py`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.collective.mean_server import MeanServer, _Meeting
from paceline.core.paramserver.robust_mean import RobustPolicy
from paceline.core.scheme import make, names
from paceline.core.validation.message_checker import Checker, FalseClaims
from paceline.sim.checking.invariants import InvariantBroken
from paceline.sim.cluster.model import Fault, uniform
from paceline.sim.faults import lying_worker
from paceline.sim.fuzzing.fuzz import go_on_to_the_end, simulation
from paceline.sim.fuzzing.random_parameters import NEWER
from paceline.sim.fuzzing.script import plan_of
from paceline.sim.kernel.workload import LocalSteps
from paceline.sim.simulation import Simulation
from tests.sim.fuzzing.liars import play, with_liar
from tests.sim.robust_numbers import Numbers

Patch = pytest.MonkeyPatch


SEEDS = 400


@pytest.mark.parametrize("part", range(4))
def test_the_others_go_on_and_nobody_but_the_liar_is_put_out(part: int) -> None:
    for seed in range(part, SEEDS, 4):
        if with_liar(seed):
            sim = play(seed)
            assert sim.members.banned <= sim.liars


def test_nor_under_the_newer_schemes() -> None:
    for seed in range(60):
        if with_liar(seed, NEWER):
            sim = play(seed, NEWER)
            assert sim.members.banned <= sim.liars


def test_the_seeds_draw_lies_in_every_scheme_and_some_are_put_out() -> None:
    plans = [plan for seed in range(1500) if (plan := with_liar(seed))]
    assert {plan.scheme.name for plan in plans} == set(names()) - {"hybrid", *NEWER}
    assert any(play(plan.seed).members.banned for plan in plans[:20])


# ---- planted bugs ------------------------------------------------------------------------------------------------
def nothing_is_checked(patch: Patch) -> None:
    patch.setattr(Checker, "check", lambda self, src, message, stream=0, length=0: None)


def strikes_have_no_end(patch: Patch) -> None:
    patch.setattr(FalseClaims, "strike", lambda self, src, why, *, at_once: None)


def a_mean_waits_for_whoever_named_another(patch: Patch) -> None:
    patch.setattr(MeanServer, "_go_on_together", lambda self: ())


def clocks_are_not_checked(patch: Patch) -> None:
    patch.setattr(Checker, "_tick", lambda self, src, stream, cls, message, table: None)


def lengths_are_not_checked(patch: Patch) -> None:
    patch.setattr(Checker, "misfit", lambda self, message, length: None)


def nothing_is_brought_to_its_bounds(patch: Patch) -> None:
    patch.setattr(Checker, "nearest", lambda self, src, message, stream=0, length=0: message)


@pytest.mark.parametrize(
    "bug",
    [
        nothing_is_checked,
        a_mean_waits_for_whoever_named_another,
        clocks_are_not_checked,
        lengths_are_not_checked,
        nothing_is_brought_to_its_bounds,
    ],
)
def test_a_planted_bug_is_caught(bug: Callable[[Patch], None], monkeypatch: Patch) -> None:
    bug(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017  a bug may show as any exception
        for seed in range(SEEDS):
            if with_liar(seed):
                play(seed)


# ---- a mean that a liar contradicts ------------------------------------------------------------------------------
CONTRADICTED = """
seed = 122
scheme = "diloco"
runs = ["faults"]
samples = [3, 4, 3]
leased = [65, 6]
[parameters]
h = 6
fragments = 3
memory = "average"
[cluster]
suspect_after_s = 3.0
skew_s = 5.0
[[cluster.hosts]]
name = "worker-0"
[[cluster.hosts.devices]]
factor = 2.6413324215174825
[[cluster.hosts]]
name = "worker-1"
[[cluster.hosts.devices]]
factor = 1.4895082351708087
[[cluster.hosts]]
name = "worker-2"
[[cluster.hosts.devices]]
factor = 1.727192004313474
[[cluster.hosts]]
name = "servers"
count = 2
servers = 1
[[cluster.faults]]
kind = "pause"
at_s = 3.8445043045595857
for_s = 0.3
hosts = ["worker-0"]
[[cluster.faults]]
kind = "leave"
at_s = 13.086942312664641
hosts = ["worker-0"]
[[cluster.faults]]
kind = "reset"
at_s = 7.219000623790448
hosts = ["worker-2"]
[[cluster.faults]]
kind = "disk-full"
at_s = 7.490330901303509
for_s = 6.0
hosts = ["servers-1"]
[[cluster.faults]]
kind = "lie"
at_s = 0.0
workers = [2]
[cluster.hazards]
late_s = 0.01
"""
"""Worker 0 has left, and the liar names a mean that does not exist. Worker 1, which has come to the right one, used to
get the liar's part of another fragment; and worker 0, which came back, another mean than worker 1 under that name."""


def test_a_liar_makes_no_two_honest_workers_get_different_means(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lying_worker, "LIES_IN_LENGTHS", 0.0)  # or this one is expelled before it names that mean
    go_on_to_the_end(simulation(plan_of(CONTRADICTED)))
    monkeypatch.setattr(_Meeting, "can_end_with", lambda self, result: True)
    with pytest.raises(InvariantBroken, match="the members of diloco/8 get a mean of series 1 instead of 2"):
        go_on_to_the_end(simulation(plan_of(CONTRADICTED)))


# ---- robust means --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rule", ["median", "trimmed"])
@pytest.mark.parametrize("seed", range(6))
def test_under_robust_means_the_model_stays_between_the_optima_of_the_honest(rule: str, seed: int) -> None:
    """f_i is |w - c_i|^2 / 2; every coordinate of the model lies between those of the honest c_i, if it ever does."""
    rng = np.random.default_rng(seed)
    c = rng.normal(size=(5, 8))
    low, high = c[1:].min(axis=0), c[1:].max(axis=0)
    start = (low + high) / 2

    def gradient(rank: int, w: Any) -> Any:
        return w - c[rank] if rank else rng.choice([-1e6, 0.0, 1e6], size=8)

    cluster = replace(uniform(5, 2), faults=(Fault(kind="lie", at_s=0.0, one_in=2, workers=(0,)),))
    rounds = RobustPolicy(rule=rule, f=1).rounds(Numbers())
    work = LocalSteps(lambda rank, rng: 1.0, gradient, samples=lambda rank: 4)
    sim = Simulation(make("bsp", {}), start, work, cluster=cluster, seed=seed, rounds=rounds, batch_samples=4)

    def within(sim: Simulation) -> bool:
        w = sim.model()
        assert np.all((low - 1e-9 <= w) & (w <= high + 1e-9))
        return False

    sim.run(until=60.0, stop=within)
    assert min(sim.steps[1:]) >= 50
    assert sim.members.banned <= {0}
