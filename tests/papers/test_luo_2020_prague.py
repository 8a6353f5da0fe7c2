"""Luo et al., Prague: High-Performance Heterogeneity-Aware Asynchronous Decentralized Training, ASPLOS 2020."""

from typing import Any

import numpy as np
import pytest

from paceline.core.effects import Effect, Mean, Tell
from paceline.core.scheme import make
from paceline.core.trace import Record, Span
from paceline.core.vector import Ghost
from paceline.schemes import prague
from paceline.schemes.prague import ReducePart
from paceline.sim import LocalSteps, Simulation
from tests.conformance.test_sim import watch
from tests.papers.sentences import says

WORKERS = 16
SLOW = 5


def run(
    scheme: str, *, slowdown: float = 1.0, seconds: float = 120.0, jitter: float = 0.1, **parameters: Any
) -> tuple[Simulation, float]:
    """16 workers, one of them slower; and the share of their time that they wait for one another."""
    records: list[Record] = []
    work = LocalSteps(lambda rank, rng: (slowdown if rank == SLOW else 1.0) * rng.uniform(1 - jitter, 1 + jitter))
    sim = Simulation(make(scheme, parameters), Ghost(1000), work, workers=WORKERS, servers=0, trace=records.append)
    sim.run(until=seconds)
    spans = [record for record in records if isinstance(record, Span)]
    return sim, sum(s.seconds for s in spans if s.activity == "waiting") / sum(s.seconds for s in spans)


@pytest.mark.parametrize("slowdown", [2.0, 5.0])
def test_a_slow_worker_is_tolerated(slowdown: float) -> None:
    """Abstract: "In a heterogeneous setting, Prague tolerates slowdowns well"."""
    equal, _ = run("prague")
    slow, _ = run("prague", slowdown=slowdown)
    all_reduce, _ = run("bsp", slowdown=slowdown)
    assert sum(slow.steps) > 0.85 * sum(equal.steps)
    assert sum(slow.steps) > 0.8 * slowdown * sum(all_reduce.steps)


def test_the_filter_keeps_workers_that_are_much_slower_out_of_groups_that_others_ask_for() -> None:
    assert says(
        prague, "The filter keeps workers that are much slower out of groups that others ask for. A slow worker asks"
    )
    with_it, waiting = run("prague", slowdown=5.0)
    without, more_waiting = run("prague", slowdown=5.0, c_thres=1_000_000)
    assert sum(with_it.steps) > 1.1 * sum(without.steps)
    assert waiting < 0.8 * more_waiting


def test_a_division_makes_groups_without_a_conflict() -> None:
    """Abstract: "Group Buffer and Group Division, to largely eliminate conflicts with slightly reduced randomness"."""
    _, divided = run("prague")
    _, at_random = run("prague", groups="random")
    assert divided < 0.3 * at_random


def test_even_the_slow_worker_takes_part_in_groups() -> None:
    members: list[tuple[int, Any]] = []

    def see(rank: int, effect: Effect) -> None:
        if isinstance(effect, Tell) and isinstance(effect.message, ReducePart):
            members.append((rank, effect.to))

    work = LocalSteps(lambda rank, rng: 5.0 if rank == SLOW else 1.0)
    sim = Simulation(make("prague", {}), np.zeros(2), work, workers=WORKERS, servers=0)
    for rank in range(WORKERS):
        watch(sim, rank, see)
    sim.run(until=200)
    sent = [rank for rank, to in members if rank == SLOW]
    assert len(sent) > 1.5 * sim.steps[SLOW], "two models a step, as it is in groups of three"
    assert {to for rank, to in members if rank == SLOW} == set(range(WORKERS)) - {SLOW}, "with everybody, in turn"


def test_partial_all_reduce_is_among_the_members_of_a_group_alone() -> None:
    """Every member of a group hears all others of it, and nobody else hears of it; there is no mean over all."""
    told: dict[int, set[tuple[int, Any]]] = {}

    def see(rank: int, effect: Effect) -> None:
        assert not isinstance(effect, Mean)
        if isinstance(effect, Tell) and isinstance(effect.message, ReducePart):
            told.setdefault(effect.message.round, set()).add((rank, effect.to))

    work = LocalSteps(lambda rank, rng: 1.0)
    sim = Simulation(make("prague", {}), np.zeros(2), work, workers=WORKERS, servers=0)
    for rank in range(WORKERS):
        watch(sim, rank, see)
    sim.run(until=20.5)
    assert len(told) > 90
    for pairs in told.values():
        members = {rank for rank, _ in pairs}
        assert len(members) in (2, 3), "16 are four groups of three and two of two"
        assert pairs == {(i, j) for i in members for j in members if i != j}
