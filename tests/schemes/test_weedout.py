import math
from random import Random

import numpy as np
import pytest

from paceline.core.paramserver.gated_server import Push
from paceline.core.scheme import make
from paceline.core.trace import Decided, Record
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps, Simulation
from tests.role_driver import server


def test_what_comes_from_a_worker_not_among_the_last_senders_is_dropped() -> None:
    weedout = server("weedout", workers=2, window=2)
    weedout.push(0, clock=1)
    weedout.push(1, clock=1)
    weedout.push(0, clock=2)
    weedout.push(0, clock=3)
    assert set(weedout.push(1, clock=2, g=100.0)) == {1}, "it is answered at once all the same"
    assert weedout.role.w == [-4.0]
    assert weedout.decisions() == [(1, "dropped", "not among the last 2 reports")]
    assert [(u.ranks, u.weight) for u in weedout.updates()][-1] == ((1,), 0.0)


def test_a_report_that_was_dropped_counts_as_a_report() -> None:
    weedout = server("weedout", workers=2, window=1)
    for clock in (1, 2):
        weedout.push(0, clock=clock)
    weedout.push(1, clock=1)
    assert set(weedout.push(1, clock=2)) == {1}
    assert weedout.role.w == [-3.0]


def test_nothing_is_dropped_before_the_window_is_full() -> None:
    weedout = server("weedout", workers=2, window=5)
    for clock in range(1, 5):
        weedout.push(0, clock=clock)
    weedout.push(1, clock=1)
    assert weedout.role.w == [-5.0]
    assert weedout.decisions() == []


def test_the_window_is_never_smaller_than_the_number_of_workers_and_shrinks_with_it() -> None:
    weedout = server("weedout", workers=4, window=2)
    assert weedout.role.window == 4
    weedout.gone(3)
    assert weedout.role.window == 3


def test_with_weights_as_payload_a_dropped_worker_starts_from_fresh_weights() -> None:
    weedout = server("weedout", workers=2, window=1, payload="weights", alpha=0.5)

    def send(src: int, x: float, clock: int) -> float:
        return weedout.on(src, Push(g=np.array([x]), clock=clock, samples=1))[src].w[0]

    assert send(1, 8.0, 1) == 4.0
    assert weedout.role.w == [4.0]
    assert send(0, 8.0, 1) == 6.0
    assert send(0, 6.0, 2) == 6.0
    assert weedout.role.w == [6.0]
    assert send(1, 100.0, 2) == 6.0
    assert weedout.role.w == [6.0]


def test_by_default_the_window_has_two_reports_of_each_worker() -> None:
    weedout = server("weedout", workers=4)
    assert weedout.role.window == 8
    weedout.gone(3)
    assert weedout.role.window == 6
    weedout.came(3)
    assert weedout.role.window == 8


def share_dropped(workers: int, window: int, jitter: float) -> float:
    """Of the steps of equal workers, whose steps have that much jitter."""
    records: list[Record] = []

    def seconds(rank: int, rng: Random) -> float:
        return math.exp(rng.gauss(-jitter * jitter / 2, jitter))

    scheme = make("weedout", {"window": window})
    sim = Simulation(scheme, Ghost(4), LocalSteps(seconds), workers=workers, trace=records.append, watched=False)
    sim.run(until=3000 / workers)
    return sum(isinstance(r, Decided) and r.verdict == "dropped" for r in records) / sum(sim.steps)


@pytest.mark.parametrize("workers", [4, 8, 16, 64])
def test_by_default_next_to_nothing_of_equal_workers_is_dropped_and_by_the_papers_window_much(workers: int) -> None:
    assert share_dropped(workers, 0, jitter=0.1) < 0.001
    assert share_dropped(workers, 0, jitter=0.3) < 0.01
    assert 0.1 < share_dropped(workers, 1, jitter=0.1) < 0.5
