"""What a trace says of costs: made up with known ones, which come back."""

from __future__ import annotations

import random

import pytest

from paceline.core.trace import CpuUsed, Record, Span
from paceline.sim.cluster.recorded_costs import RunCosts, quantile

STEP_S, WORKER_S, SERVER_S, WAY_S = 0.008, 0.003, 0.002, 0.001


def made_up(workers: int = 3, steps: int = 200, *, waits_s: float = 0.02, emulated_s: float = 0.0) -> list[Record]:
    """Records of workers that wait for cores and for the server, but for one exchange in five."""
    records: list[Record] = []
    for rank in range(workers):
        rng, at, cpu = random.Random(rank), 0.0, 0.0
        for number in range(steps):
            waited = rng.uniform(0, waits_s) if rng.random() < 0.8 else 0.0
            at += (WORKER_S + SERVER_S + WAY_S + waited) if number else 0.0
            core_s = STEP_S * rng.uniform(0.9, 1.1)
            seconds = max(emulated_s, core_s + (rng.uniform(0, waits_s) if rng.random() < 0.8 else 0.0))
            at += seconds
            cpu += core_s + (WORKER_S if number else 0.0)
            span = Span(
                at=at, rank=rank, activity="computing", seconds=seconds, steps=1, exchanges=int(number > 0), cpu=core_s
            )
            records.append(span)
        records.append(CpuUsed(at=at, party=f"worker {rank}", seconds=cpu, cores=2))
    exchanges = workers * (steps - 1)
    records.append(CpuUsed(at=1e9, party="server 0", seconds=exchanges * SERVER_S, cores=2))
    return records


def test_known_costs_come_back_whatever_was_waited_for() -> None:
    for waits_s in (0.0, 0.02, 0.2):
        costs = RunCosts(made_up(waits_s=waits_s), 3, 1)
        assert costs.known
        assert costs.cores == 2
        exchange = costs.exchange()
        assert exchange.worker_s == pytest.approx(WORKER_S, rel=0.01)
        assert exchange.server_s == pytest.approx(SERVER_S, rel=0.01)
        assert exchange.way_s == pytest.approx(WAY_S, rel=0.05)
        for rank in range(3):
            assert costs.step_cpu_s(rank) == pytest.approx(STEP_S, rel=0.02)
            assert costs.threads(rank) == 1
            own = costs.own_seconds(rank, 0.0)
            assert sum(own) / len(own) == pytest.approx(STEP_S, rel=0.02)


def test_an_emulated_step_takes_its_emulated_seconds() -> None:
    assert RunCosts(made_up(emulated_s=0.05), 3, 1).own_seconds(0, 0.05) == [pytest.approx(0.05)]


def test_a_step_with_several_threads_is_told_by_its_core_seconds() -> None:
    records: list[Record] = [
        Span(at=0.1 * n, rank=0, activity="computing", seconds=0.1, steps=1, cpu=0.38) for n in range(1, 50)
    ]
    costs = RunCosts([*records, CpuUsed(at=5.0, party="worker 0", seconds=19.0, cores=8)], 1, 0)
    assert costs.threads(0) == 4
    assert costs.own_seconds(0, 0.0)[0] == pytest.approx(0.1)


def test_what_a_process_does_beside_few_exchanges_is_not_their_cost() -> None:
    records = made_up(1, 20, waits_s=0.0)
    records[-2] = CpuUsed(at=1e9, party="worker 0", seconds=50.0, cores=2)
    assert RunCosts(records, 1, 1).exchange().worker_s == pytest.approx(WORKER_S + SERVER_S + WAY_S)


def test_a_trace_without_core_seconds_is_not_enough() -> None:
    without = [record for record in made_up() if not isinstance(record, CpuUsed)]
    assert not RunCosts(without, 3, 1).known
    assert not RunCosts([record for record in made_up() if getattr(record, "party", "") != "server 0"], 3, 1).known
    assert RunCosts([], 1, 0).exchange().way_s == 0.0


def test_a_quantile_is_a_value_that_was_there() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.1) == 1.0
    assert quantile([3.0, 1.0, 2.0], 1.0) == 3.0
    assert quantile([], 0.5) == 0.0
