"""The conformance table in the simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from random import Random
from typing import Any

import numpy as np
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.effects import Compute, Effect, Mean, Train
from paceline.core.message import size
from paceline.core.scheme import names
from paceline.core.trace import Record
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps, Simulation, plain_sgd
from tests.conformance.schemes_table import (
    CASES,
    DIMENSION,
    LABELS,
    RUNS,
    SAMPLE,
    W0,
    Case,
    Ledger,
    distance,
    gradient,
    labels,
    undeclared,
    watched,
)

on_every_row = pytest.mark.parametrize(("case", "servers"), RUNS, ids=LABELS)
on_the_sample = pytest.mark.parametrize(("case", "servers"), SAMPLE, ids=labels(SAMPLE))
LEADING = [(case, servers) for case, servers in RUNS if case.leads]
HANDED_OVER = [(case, servers) for case, servers in SAMPLE if not case.make().needs_peers]
"""Peers apply their own work; what they pass on is held to in test_mass."""

on_all_of_it_that_hands_work_over = pytest.mark.parametrize(("case", "servers"), HANDED_OVER, ids=labels(HANDED_OVER))


def uneven(rank: int, rng: Random) -> float:
    return (1 + rank % 2) * rng.uniform(0.5, 1.5)


def hasty(rank: int, rng: Random) -> float:
    """Worker 1 is so fast that what it does anew after a restart arrives while others are still at the old round."""
    return (0.2 if rank == 1 else 1.0) * rng.uniform(0.5, 1.5)


def simulate(case: Case, servers: int, w0: Any = W0, see: Callable[..., None] | None = None, **more: Any) -> Simulation:
    work = more.pop("work", None) or LocalSteps(uneven, gradient, lr=case.lr)
    sgd = plain_sgd(more.pop("lr", case.lr))
    sim = Simulation(case.make(), w0, work, workers=case.workers, servers=servers, update_factory=sgd, **more)
    if see is not None:
        for rank in range(case.workers):
            watch(sim, rank, see)
    return sim


def watch(sim: Simulation, rank: int, see: Callable[..., None]) -> None:
    role = sim.worker(rank)
    run = role.run
    role.run = lambda: watched(run(), lambda effect: see(rank, effect))  # type: ignore[method-assign]
    sim.restart(rank)


def all_beyond(steps: int) -> Callable[[Simulation], bool]:
    return lambda sim: min(sim.steps) >= steps


def far_enough(case: Case, ranks: range | None = None) -> Callable[[Simulation], bool]:
    return lambda sim: min(sim.steps[rank] for rank in ranks or range(case.workers)) >= case.steps


def test_every_scheme_of_the_registry_has_a_row() -> None:
    assert {case.scheme for case in CASES} == set(names())


@on_every_row
def test_it_finds_the_optimum_that_all_workers_share(case: Case, servers: int) -> None:
    sim = simulate(case, servers).run(stop=far_enough(case))
    assert distance(sim.model()) < case.near


@on_every_row
def test_the_same_seed_gives_the_same_run_bit_for_bit(case: Case, servers: int) -> None:
    def once(seed: int) -> tuple[Any, ...]:
        records: list[Record] = []
        sim = simulate(case, servers, seed=seed, trace=records.append).run(until=60)
        return sim.events, sim.now, sim.steps, sim.model().tobytes(), records

    assert once(3) == once(3)
    assert once(3) != once(4)


@on_every_row
def test_a_run_without_numbers_has_the_same_events_in_the_same_order(case: Case, servers: int) -> None:
    def once(w0: Any) -> tuple[Any, ...]:
        records: list[Record] = []
        work = LocalSteps(uneven) if isinstance(w0, Ghost) else None
        sim = simulate(case, servers, w0, work=work, trace=records.append).run(until=60)
        return sim.events, sim.now, sim.steps, records

    assert once(W0) == once(Ghost(DIMENSION))


@on_every_row
def test_it_yields_what_it_declares_and_nothing_else(case: Case, servers: int) -> None:
    kinds: set[type] = set()
    scheme = case.make()

    def see(rank: int, effect: Effect) -> None:
        assert undeclared(scheme, servers, effect) is None
        kinds.add(type(effect))

    sim = simulate(case, servers, see=see).run(until=30)
    assert (Mean in kinds) == scheme.uses_mean(servers)
    assert (Train if scheme.trains_locally else Compute) in kinds
    assert len(kinds) > 1
    assert (sim.coordinator is not None) == (scheme.Coordinator is not None)


@on_every_row
def test_nothing_is_changed_once_it_has_been_sent(case: Case, servers: int) -> None:
    sent: list[tuple[Any, list[bytes | str]]] = []

    def look(message: Any) -> list[bytes | str]:
        values = [getattr(message, field.name) for field in fields(message)]
        return [v.tobytes() if isinstance(v, np.ndarray) else repr(v) for v in values]

    def passage(src: Any, dst: Any, message: Any) -> tuple[Any, int]:
        sent.append((message, look(message)))
        return message, size(message)

    simulate(case, servers, passage=passage).run(until=20)
    assert sent or servers == 0
    assert all(look(message) == as_sent for message, as_sent in sent)


@on_every_row
def test_a_worker_that_leaves_does_not_stall_the_others(case: Case, servers: int) -> None:
    sim = simulate(case, servers).run(until=20)
    sim.leave(1)
    sim.run(until=40)
    left_at = sim.steps[1]
    others = range(2, case.workers)
    sim.run(until=1000, stop=far_enough(case, others))
    assert sim.steps[1] == left_at
    assert far_enough(case, others)(sim)
    assert distance(sim.model()) < case.near


@on_the_sample
def test_a_worker_that_crashes_and_comes_back_takes_part_again(case: Case, servers: int) -> None:
    goes_and_comes_back(case, servers, lambda sim: sim.crash(1))


@pytest.mark.parametrize(("case", "servers"), LEADING, ids=labels(LEADING))
def test_a_worker_that_leaves_and_comes_back_takes_part_again(case: Case, servers: int) -> None:
    goes_and_comes_back(case, servers, lambda sim: sim.leave(1))


def goes_and_comes_back(case: Case, servers: int, go: Callable[[Simulation], None]) -> None:
    sim = simulate(case, servers).run(until=20)
    go(sim)
    sim.run(until=50)
    went_at, others_at = sim.steps[1], min(sim.steps[2:])
    sim.join(1)
    sim.run(until=50 + 16 * case.steps, stop=lambda sim: sim.steps[1] >= went_at + case.steps)
    assert sim.steps[1] >= went_at + case.steps, f"stalled at {sim.steps}"
    assert min(sim.steps[2:]) > others_at + case.steps // 4, f"the others stalled at {sim.steps}"
    assert distance(sim.model()) < case.near


@on_the_sample
def test_workers_may_go_and_come_at_any_time(case: Case, servers: int) -> None:
    """Wherever in a round it falls: what a newcomer takes over fits what the others do."""
    for seed in range(2 if case.leads else 1):
        random = Random(seed)
        sim = simulate(case, servers, seed=seed)
        for _ in range(12):
            sim.run(until=sim.now + random.uniform(0.1, 15))
            rank = random.randrange(1, case.workers)
            random.choice([sim.leave, sim.crash, sim.join, sim.join, sim.restart])(rank)
        for rank in range(1, case.workers):
            sim.join(rank)
        sim.run(until=sim.now + 30)
        before = list(sim.steps)
        sim.run(until=sim.now + 16 * case.steps, stop=all_beyond(max(before) + case.steps))
        assert min(b - a for a, b in zip(before, sim.steps, strict=True)) > case.steps // 4, f"seed {seed}: {sim.steps}"
        assert distance(sim.model()) < case.near, f"seed {seed}"


@on_the_sample
def test_a_worker_killed_at_any_yield_goes_on_where_it_was(case: Case, servers: int) -> None:
    # Primes, so that in one round or another it falls between any two events of a round.
    dense, sparse = (11, 23) if servers == 3 else (7, 13)
    for kill_at in range(4, 130, dense if case.leads else sparse):
        sim = simulate(case, servers).run(max_events=kill_at)
        sim.restart(1)
        sim.run(until=8 * case.steps, stop=far_enough(case))
        assert far_enough(case)(sim), f"stalled when killed after event {kill_at}: {sim.steps}"
        assert distance(sim.model()) < case.near, f"killed after event {kill_at}"


@on_all_of_it_that_hands_work_over
def test_no_contribution_of_a_killed_worker_is_applied_twice(case: Case, servers: int) -> None:
    repeats = 0
    dense, sparse = (5, 11) if servers == 3 else (3, 7)  # odd, for two kinds of work in turn
    for kill_at in range(8, 130, dense if case.leads else sparse):
        statistics = Ledger(600)
        work = LocalSteps(hasty if kill_at % 2 else uneven, statistics.gradient, lr=1.0)
        w0 = np.zeros(statistics.length, dtype=np.float32)
        sim = simulate(case, servers, w0, work=work, lr=1.0, see=statistics.see).run(max_events=kill_at)
        sim.restart(1)
        sim.run(max_events=kill_at + 20)
        sim.restart(1)
        sim.run(until=sim.now + 30)
        model = sim.model()
        assert statistics.applied_twice(model) == [], f"killed after event {kill_at}"
        assert statistics.applied(model) > 10
        repeats += statistics.repeats
    assert repeats > 0, "no kill ever fell between a contribution and its answer"
