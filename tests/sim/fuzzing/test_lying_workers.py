"""A worker that lies costs itself, and nobody else (`sim/faults/lying_worker.py`, `sim/fuzzing/lying_workers.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.collective.mean_server import MeanServer
from paceline.core.local.push_sum import Share
from paceline.core.paramserver.clocks import Clocks
from paceline.core.paramserver.robust_mean import RobustPolicy
from paceline.core.samples.sample_leases import APPLIED, Leases
from paceline.core.scheme import make, names
from paceline.core.validation.bounds import COUNT_MAX, PlanLimits
from paceline.core.validation.message_checker import Checker, FalseClaims
from paceline.core.vector import Ghost
from paceline.sim.cluster.model import Fault, uniform
from paceline.sim.fuzzing import lying_workers
from paceline.sim.fuzzing.fuzz import CALM_S, FuzzPlan, draw, go_on_to_the_end
from paceline.sim.fuzzing.random_parameters import schemes_of
from paceline.sim.kernel.workload import LocalSteps
from paceline.sim.simulation import Simulation
from tests.sim.robust_numbers import Numbers

Patch = pytest.MonkeyPatch
SEEDS = 400


def with_liar(seed: int) -> FuzzPlan | None:
    plan = draw(seed, schemes_of(seed, names()))
    cluster = lying_workers.draw(seed, plan.scheme, plan.cluster, CALM_S)
    return replace(plan, cluster=cluster) if cluster else None


def play(seed: int) -> Simulation:
    plan = with_liar(seed)
    assert plan
    return go_on_to_the_end(plan, lambda record: None)[0]


@pytest.mark.parametrize("part", range(4))
def test_the_others_go_on_and_nobody_but_the_liar_is_put_out(part: int) -> None:
    for seed in range(part, SEEDS, 4):
        if with_liar(seed):
            sim = play(seed)
            assert sim.members.banned <= sim.liars


def test_a_round_that_is_brought_to_its_bounds_may_be_told_on() -> None:
    """An honest worker that returned a share with the round that a liar had given it had the strike."""
    sim = play(6699)
    assert set(sim.members.banned) <= sim.liars
    checker = Checker(PlanLimits(workers=3))
    for round in (COUNT_MAX, 2**60):
        share = Share(w=Ghost(1), weight=0.5, round=round)
        if checker.check(0, share) is not None:
            share = checker.nearest(0, share)
        assert share.round <= COUNT_MAX


def test_the_seeds_draw_lies_in_every_scheme_and_some_are_put_out() -> None:
    plans = [plan for seed in range(1500) if (plan := with_liar(seed))]
    assert {plan.scheme.name for plan in plans} == set(names()) - {"hybrid"}
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


def nothing_is_brought_to_its_bounds(patch: Patch) -> None:
    patch.setattr(Checker, "nearest", lambda self, src, message, stream=0, length=0: message)


@pytest.mark.parametrize(
    "bug",
    [
        nothing_is_checked,
        a_mean_waits_for_whoever_named_another,
        clocks_are_not_checked,
        nothing_is_brought_to_its_bounds,
    ],
)
def test_a_planted_bug_is_caught(bug: Callable[[Patch], None], monkeypatch: Patch) -> None:
    bug(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017  a bug may show as any exception
        for seed in range(SEEDS):
            if with_liar(seed):
                play(seed)


# ---- what the fuzzer found -------------------------------------------------------------------------------------
def test_a_clock_of_2_to_the_60_makes_nobody_count_to_it() -> None:
    clocks = Clocks([0, 1])
    clocks.tick(0, 2**60)
    clocks.tick(1, 2**60 + 5)
    assert clocks.low == 2**60


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


def _asked(sim: Simulation) -> Sequence[Any]:
    asked: list[Any] = []
    on = sim.world.coordinator.on  # type: ignore[union-attr]
    sim.world.coordinator.on = lambda now, src, message: (asked.append(message), on(now, src, message))[1]  # type: ignore
    sim.run(until=0.5)
    return asked


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
