"""What a trace says of costs: made up with known ones, which come back."""

from __future__ import annotations

import dataclasses
import random

import pytest

from paceline.core.trace import CpuUsed, LinkTraffic, Record, Span
from paceline.sim.cluster.model import PASS
from paceline.sim.cluster.recorded_costs import FIXED_S, SERVER_RATIO, ExchangeCosts, RunCosts, quantile

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


def test_the_traffic_of_links_says_whether_servers_took_part() -> None:
    """A server that reports every quarter of a second uses core seconds, too."""
    link = LinkTraffic(at=1.0, party="worker 1", other="worker 0", sent=10**8, received=10**8, seconds=1.0)
    means = RunCosts([*made_up(), link], 3, 1).exchange()
    assert means.among_workers
    assert means.server_s == 0.0
    pushes = dataclasses.replace(link, other="server 0")
    assert not RunCosts([*made_up(), link, pushes, pushes], 3, 1).exchange().among_workers
    assert not RunCosts(made_up(), 3, 1).exchange().among_workers, "the core seconds say it where links do not"


def test_what_a_role_computes_is_no_cost_of_messages() -> None:
    """10 MB either way and two vectors of 10 MB, at 1 ms for each copied megabyte and 1.8 ms for one of a pass."""
    copied_s, passes_s = 0.001 * (20 + 20), PASS * SERVER_RATIO * 0.001 * (10 + 20)
    exchange = ExchangeCosts(2 * FIXED_S + copied_s + passes_s, 0.0, 0.0, among_workers=True)
    assert exchange.messages(10, 10, 10, 1, 20).worker_s_per_mb == pytest.approx(0.001)
    assert exchange.messages(10, 10, 10, 1).worker_s_per_mb > 0.0015
    pulled = ExchangeCosts(0.1, 0.02, 0.0)
    less, more = (pulled.messages(10, 10, 10, 1, computed_mb).worker_s_per_mb for computed_mb in (20, 0))
    assert (more - less) * 20 == pytest.approx(PASS * pulled.messages(10, 10, 10, 1).server_s_per_mb * 20)
