"""What every scheme that trains locally shares, shown on local SGD."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.collective.mean_server import Averaged
from paceline.core.effects import KEEP, RESET, Effect, Mean, Train, Trained
from paceline.core.paramserver.gradient_check import GradientCheckPolicy, SliceGradientCheck
from paceline.core.role import RoleContext
from paceline.core.scheme import make
from paceline.sim import LocalSteps, Simulation

GOALS = np.array([[1.0, 0.0, 3.0], [5.0, 2.0, -1.0]])


class Seen(LocalSteps):
    """Notes what the optimizers were told to remember."""

    def __init__(self, momentum: float = 0.5, samples: Callable[[int], int] = lambda rank: 1 + 2 * rank) -> None:
        super().__init__(
            lambda rank, rng: 1.0 + rank,
            lambda rank, w: w - GOALS[rank],
            samples=samples,
            lr=0.25,
            momentum=momentum,
        )
        self.memories: list[Any] = []

    def train(self, rank: int, wanted: Train, rng: Random) -> Trained:
        if rank == 1:
            self.memories.append(wanted.memory)
        return super().train(rank, wanted, rng)


def run(rounds: int, servers: int = 1, work: Seen | None = None, **parameters: Any) -> tuple[Simulation, Seen]:
    work = work or Seen()
    sim = Simulation(make("localsgd", parameters), np.zeros(3), work, workers=2, servers=servers)
    return sim.run(stop=lambda sim: min(sim.worker(r).round for r in (0, 1)) == rounds), work


def test_kept_memory_is_never_touched_and_reset_memory_always() -> None:
    assert set(run(4, memory="keep")[1].memories) == {KEEP}
    assert set(run(4, memory="reset")[1].memories) == {RESET}


@pytest.mark.parametrize("servers", [0, 1, 3])
def test_averaged_memory_is_the_mean_by_samples(servers: int) -> None:
    """One local step: the momentum of both is the gradient, so their mean is the gradient of the union."""
    sim, work = run(2, servers, tau=1, memory="average")
    g = (GOALS[0] + 3 * GOALS[1]) / 4
    first, second = work.memories[0], work.memories[1]
    assert first == KEEP, "there is nothing to average before the first round"
    assert second == pytest.approx(-g)
    w1 = 0.25 * g
    assert sim.model() == pytest.approx(w1 - 0.25 * ((w1 - g) + 0.5 * -g), abs=1e-12)


def test_one_step_with_average_is_one_process_with_momentum_on_the_union() -> None:
    g, w, v = (GOALS[0] + 3 * GOALS[1]) / 4, np.zeros(3), np.zeros(3)
    for _ in range(7):
        v = 0.5 * v + (w - g)
        w = w - 0.25 * v
    assert run(7, tau=1, memory="average")[0].model() == pytest.approx(w)
    assert run(7, tau=1, memory="keep")[0].model() == pytest.approx(w), "so it is when kept: momentum is linear"


def test_an_optimizer_without_memory_has_nothing_to_average() -> None:
    sim, work = run(3, work=Seen(momentum=0.0), memory="average")
    assert set(map(str, work.memories)) == {KEEP}
    assert sim.model() == pytest.approx(run(3, work=Seen(momentum=0.0), memory="keep")[0].model())


def effects_of(memory_length: int, kill_after: int | None) -> list[Effect]:
    """What a worker yields in one round, restarted after so many effects if at all."""
    scheme = make("localsgd", {"memory": "average"})
    place = RoleContext(me=0, workers=(0,), w=np.zeros(4), update=lambda w, g, samples: w)
    worker = scheme.Worker(scheme, place)
    seen: list[Effect] = []
    loop, answer = worker.run(), None
    while worker.round == 0 or not seen:
        effect = loop.send(answer)
        seen.append(effect)
        if len(seen) == kill_after:
            loop.close()
            loop, answer = worker.run(), None
            continue
        match effect:
            case Train(x):
                answer = Trained(x + 1, 10, 1.0, np.arange(float(memory_length)) + len(seen))
            case Mean(v):
                answer = Averaged(v=v * 2, weight=10.0)
        if isinstance(effect, Train) and worker.round:
            break
    return seen


def means(effects: list[Effect]) -> list[tuple[str, list[float]]]:
    return [(str(effect.tag), effect.v.tolist()) for effect in effects if isinstance(effect, Mean)]


@pytest.mark.parametrize("memory_length", [3, 4, 9])
def test_a_memory_longer_than_the_model_is_averaged_in_parts_that_are_not(memory_length: int) -> None:
    *effects, after = effects_of(memory_length, None), None
    parts = [effect.v for effect in effects[0] if isinstance(effect, Mean) and "memory" in str(effect.tag)]
    assert after is None
    assert np.concatenate(parts).tolist() == (np.arange(float(memory_length)) + 1).tolist()
    assert max(map(len, parts)) <= 4


@pytest.mark.parametrize("kill_after", range(2, 6))
def test_who_is_restarted_at_a_meeting_brings_the_same_again_and_nothing_twice(kill_after: int) -> None:
    whole, killed = means(effects_of(9, None)), means(effects_of(9, kill_after))
    assert len(whole) == 4
    repeated = kill_after - 2
    assert killed == whole[: repeated + 1] + whole[repeated:]


@pytest.mark.parametrize(
    ("scheme", "parameters"),
    [
        ("localsgd", {"tau": 4}),
        ("slowmo", {"tau": 4}),
        ("sparseloco", {"h": 4}),
        ("esync", {}),
        ("asyncdiloco", {"h": 4}),
        ("diloco", {"h": 4}),
        ("diloco", {"h": 4, "fragments": 2}),
        ("diloco", {"h": 4, "fragments": 2, "delay": 1}),
        ("diloco", {"h": 4, "delay": 2}),
        ("diloco", {"h": 4, "delay": 2, "alpha": 0.0}),
        ("diloco", {"h": 4, "eager": True}),
        ("diloco", {"h": 4, "fragments": 2, "eager": True}),
        ("easgd", {"tau": 4}),
        ("easgd", {"tau": 4, "memory": "reset"}),
        ("easgd", {"tau": 4, "synchronous": True}),
        ("easgd", {"tau": 4, "synchronous": True, "memory": "average"}),
        ("eamsgd", {"tau": 4, "delta": 0.5}),
        ("eamsgd", {"tau": 4, "delta": 0.5, "memory": "reset"}),
        ("eamsgd", {"tau": 4, "delta": 0.5, "synchronous": True}),
        ("bsp", {"payload": "delta", "steps": 4}),
        ("partial", {"payload": "delta", "steps": 4, "factor": 2.0}),
        ("partial", {"payload": "weights", "steps": 4}),
    ],
)
@pytest.mark.parametrize("at", [9, 11])
def test_one_gradient_that_is_not_finite_costs_a_worker_no_more_than_a_round(
    scheme: str, parameters: dict[str, Any], at: int
) -> None:
    """A NaN is in every gradient after it and in the momentum, until weights and momentum are new."""
    steps, expelled, finite = Counter[int](), list[int](), list[bool]()

    def gradient(rank: int, w: Any) -> Any:
        steps[rank] += 1
        spread = w.sum() * (np.nan if (rank, steps[rank]) == (1, at) else 0.0)
        g = w - GOALS[rank] + spread
        if rank == 1:
            finite.append(bool(np.isfinite(g).all()))
        return g

    def check(shard: int) -> SliceGradientCheck | None:
        norm, expel = (lambda v, onto: float(np.linalg.norm(v))), (lambda rank, why: expelled.append(rank))
        return GradientCheckPolicy(strikes=3).gate(norm, 2, shard, None, expel)

    work = LocalSteps(lambda rank, rng: 1.0, gradient, lr=0.1, momentum=0.5)
    sim = Simulation(make(scheme, parameters), np.ones(3), work, workers=2, servers=1, gate=check)
    sim.run(until=200)
    assert 1 <= finite.count(False) <= 10, "two rounds at most, where an exchange was on its way"
    assert all(finite[-50:])
    assert not expelled
    assert sim.model() == pytest.approx(GOALS.mean(axis=0), abs=0.5), "both workers' goals count"
