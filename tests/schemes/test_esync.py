from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest

from paceline.core.effects import Train, Trained
from paceline.core.scheme import make
from paceline.core.trace import Record, Span
from paceline.core.vector import Ghost
from paceline.schemes.esync import ESync, Query
from paceline.sim import Simulation, Steps
from tests.drive import ByHand


class Rounds(Steps):
    """Counts every worker's local steps by round."""

    sim: Simulation

    def __init__(self, seconds: Any, *more: Any) -> None:
        super().__init__(seconds, *more)
        self.steps: Counter[tuple[int, int]] = Counter()

    def train(self, rank: int, wanted: Train, rng: Random) -> Trained:
        self.steps[self.sim.worker(rank).round, rank] += wanted.steps
        return super().train(rank, wanted, rng)


def run(seconds: tuple[float, ...], until: float, **more: Any) -> tuple[Simulation, Rounds]:
    parameters = {key: more.pop(key) for key in ("epsilon", "global_lr") if key in more}
    work = Rounds(lambda rank, rng: seconds[rank])
    more = {"servers": 0, "latency_s": 1e-6, **more}
    work.sim = Simulation(make("esync", parameters), Ghost(100), work, workers=len(seconds), **more)
    return work.sim.run(until=until), work


def coordinator(workers: int, **parameters: float) -> ByHand:
    return ByHand(ESync.Coordinator, make("esync", parameters), workers)


def test_the_coordinator_says_train_while_a_step_fits_into_what_the_slowest_still_needs() -> None:
    boss = coordinator(2)

    def query(now: float, rank: int, round: int, k: int, c: float) -> bool:
        return boss.on(rank, Query(round=round, k=k, c=c), now)[rank].train

    assert query(0.0, 0, 0, 0, 0.0)
    assert query(0.0, 1, 0, 0, 0.0)
    assert query(3.0, 0, 0, 1, 3.0), "worker 1 was never timed: it counts as the slowest"
    assert query(6.0, 0, 0, 2, 3.0)
    assert not query(8.0, 1, 0, 1, 8.0), "it is the slowest"
    assert not query(9.0, 0, 0, 3, 3.0), "the slowest is done"
    assert query(10.0, 0, 1, 0, 0.0)
    assert query(13.0, 0, 1, 1, 3.0), "the slowest has not begun this round"
    assert query(14.0, 1, 1, 0, 0.0)
    assert query(16.0, 0, 1, 2, 3.0), "6 s are left"
    assert query(19.0, 0, 1, 3, 3.0), "3 s are left"
    assert not query(19.5, 0, 1, 4, 3.0), "2.5 s are left"
    assert [(rank, verdict) for rank, verdict, _ in boss.decisions()] == [
        (0, "train"),
        (1, "train"),
        (1, "sync"),
        (0, "sync"),
        (0, "train"),
        (1, "train"),
        (0, "sync"),
    ]
    assert boss.decisions()[-1][2] == "its step of 3.000 s does not fit into the 2.500 s that worker 1 still needs"


def test_the_slowest_makes_exactly_one_step_a_round_and_others_what_fits() -> None:
    seconds = (8.0, 1.1, 3.0, 7.9)
    _, work = run(seconds, until=400)
    for round in range(1, 45):
        assert [work.steps[round, rank] for rank in range(4)] == [max(1, int(8.0 / c)) for c in seconds]


def test_in_the_first_round_nobody_overshoots_the_slowest_by_more_than_one_step() -> None:
    seconds = (8.0, 1.1, 3.0, 7.9)
    _, work = run(seconds, until=30)
    for rank, c in enumerate(seconds):
        assert 8.0 - c < work.steps[0, rank] * c < 8.0 + c + 0.01


def test_nobody_idles_longer_than_one_step_of_its_own() -> None:
    records: list[Record] = []
    seconds = (8.0, 1.1, 3.0, 0.5)
    run(seconds, until=400, trace=records.append)
    waits = [r for r in records if isinstance(r, Span) and r.activity == "waiting" and r.at > 20]
    for rank, c in enumerate(seconds[1:], start=1):
        assert max(r.seconds for r in waits if r.rank == rank) < c
    assert max(r.seconds for r in waits if r.rank == 0) < 0.01, "nobody keeps the slowest waiting"


def test_equal_machines_make_one_step_each() -> None:
    _, work = run((2.0,) * 4, until=100)
    assert all(work.steps[round, rank] == 1 for round in range(1, 40) for rank in range(4))


@pytest.mark.parametrize("servers", [0, 2])
def test_skewed_clocks_change_nothing(servers: int) -> None:
    seconds = (8.0, 1.1, 3.0, 0.7)
    (straight, steps), (skewed, skewed_steps) = (
        run(seconds, until=200, servers=servers, skew_s=skew_s) for skew_s in (0.0, 3600.0)
    )
    assert straight.events == skewed.events
    assert steps.steps == skewed_steps.steps


def test_a_margin_keeps_a_share_of_the_own_step_free() -> None:
    _, work = run((8.0, 1.1), until=200, epsilon=0.5)
    assert all(work.steps[round, 1] == 6 for round in range(1, 20)), "the seventh needs 1.1 s and 0.55 s, of 1.4 s"


def test_the_slowest_is_found_anew_when_speeds_change() -> None:
    work = Rounds(lambda rank, rng: (4.0 if work.sim.now < 100 else 0.6, 1.5)[rank])
    work.sim = Simulation(make("esync", {}), Ghost(10), work, workers=2, servers=0, latency_s=1e-6)
    work.sim.run(until=300)
    last = work.sim.worker(0).round - 1
    assert [work.steps[5, rank] for rank in (0, 1)] == [1, 2]
    assert [work.steps[last, rank] for rank in (0, 1)] == [2, 1]


def test_the_slowest_may_leave() -> None:
    sim, work = run((50.0, 1.0, 4.0), until=120)
    sim.leave(0)
    sim.run(until=400)
    assert sim.steps[0] <= 4
    last = sim.worker(2).round - 1
    assert sim.worker(1).round > 40
    assert [work.steps[last, rank] for rank in (0, 1, 2)] == [0, 3, 1]


def test_differences_are_weighted_by_the_samples_behind_them() -> None:
    goals = np.array([[1.0], [5.0]])
    work = Rounds(lambda rank, rng: (4.0, 1.9)[rank], lambda rank, w: w - goals[rank])
    work.sim = Simulation(make("esync", {}), np.zeros(1), work, workers=2, servers=1, latency_s=1e-6)
    work.sim.run(stop=lambda sim: min(sim.worker(r).round for r in (0, 1)) == 1)
    n0, n1 = work.steps[0, 0], work.steps[0, 1]
    d0, d1 = (goal * (1 - 0.9**n) for goal, n in ((1.0, n0), (5.0, n1)))
    assert work.sim.model() == pytest.approx((n0 * d0 + n1 * d1) / (n0 + n1), rel=1e-12)


def test_the_global_learning_rate_scales_the_averaged_difference() -> None:
    def after_one_round(global_lr: float) -> float:
        work = Rounds(lambda rank, rng: 1.0, lambda rank, w: w - 1.0)
        scheme = make("esync", {"global_lr": global_lr})
        work.sim = Simulation(scheme, np.zeros(1), work, workers=1, servers=0)
        work.sim.run(stop=lambda sim: sim.worker(0).round == 1)
        return float(work.sim.model()[0])

    assert after_one_round(0.5) == pytest.approx(after_one_round(1.0) / 2)
