from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest

from paceline.core.effects import Train, Trained
from paceline.core.scheme import make
from paceline.core.trace import Record, Span
from paceline.core.vector import Ghost
from paceline.schemes.esync import Entered, ESync, LocalStepsDone, Query
from paceline.sim import LocalSteps, Simulation
from tests.role_driver import ByHand


class Rounds(LocalSteps):
    """Counts every worker's local steps by round."""

    sim: Simulation

    def __init__(self, seconds: Any, *more: Any) -> None:
        super().__init__(seconds, *more)
        self.steps: Counter[tuple[int, int]] = Counter()

    def train(self, rank: int, wanted: Train, rng: Random) -> Trained:
        self.steps[self.sim.worker(rank).round, rank] += wanted.steps
        return super().train(rank, wanted, rng)


def run(seconds: tuple[float, ...], until: float, **more: Any) -> tuple[Simulation, Rounds]:
    """As in the preprint, asking after every step and with no step that ends late, unless told otherwise."""
    given = {key: more.pop(key) for key in list(more) if key in make("esync", {}).parameters()}
    parameters = {"delayed_ack": False, "overrun": 0.0, **given}
    work = Rounds(lambda rank, rng: seconds[rank])
    more = {"servers": 0, "latency_s": 1e-6, **more}
    work.sim = Simulation(make("esync", parameters), Ghost(100), work, workers=len(seconds), **more)
    return work.sim.run(until=until), work


class Boss:
    """The coordinator of two workers, by hand, of whose steps none may end late."""

    def __init__(self, workers: int = 2, **parameters: Any) -> None:
        self.by_hand = ByHand(ESync.Coordinator, make("esync", {"overrun": 0.0, **parameters}), workers)
        self.round = 0

    def enter(self, now: float, rank: int, round: int) -> None:
        self.round = round
        assert self.by_hand.on(rank, Entered(round=round), now) == {}, "everyone trains at least once a round"

    def query(self, now: float, rank: int, k: int, c: float, ahead: int = 0) -> bool:
        return self.by_hand.on(rank, Query(round=self.round, k=k, c=c, ahead=ahead), now)[rank].train


@pytest.mark.parametrize("named", [0, 1, 9])
def test_who_says_that_it_is_done_is_not_waited_for_whatever_round_it_names(named: int) -> None:
    """A liar may name any round, and a step that took ages: the other trains on until it is done, and no longer."""
    boss = Boss(variant="preprint")
    for rank in (0, 1):
        boss.enter(0.0, rank, 1)
        boss.query(1.0, rank, 1, 1.0)
    for rank in (0, 1):
        boss.enter(2.0, rank, 2)
    assert boss.query(3.0, 0, 1, 1.0) is False, "both are as fast"
    boss.by_hand.on(1, LocalStepsDone(round=named, c=1e10), 3.0)
    assert not boss.query(4.0, 0, 2, 1.0), "the slowest is done"
    boss.enter(5.0, 1, 3)
    boss.enter(5.0, 0, 3)
    assert boss.query(6.0, 0, 1, 1.0), "it is the slowest of the next round, and trains"


def test_who_is_done_with_a_round_that_a_liar_has_ended_is_not_waited_for() -> None:
    boss = Boss(workers=3, variant="preprint")
    for rank in range(3):
        boss.enter(0.0, rank, 1)
        boss.query(1.0, rank, 1, 1.0 + rank)
    for rank in (1, 2):
        boss.enter(4.0, rank, 2)
    boss.enter(4.5, 0, 3)
    boss.round = 2
    assert boss.query(5.0, 1, 1, 1.0), "worker 2 is the slowest"
    boss.by_hand.on(2, LocalStepsDone(round=2, c=3.0), 7.0)
    assert not boss.query(7.5, 1, 2, 1.0)


def test_one_worker_that_names_rounds_far_ahead_moves_the_round_by_one() -> None:
    boss = Boss(workers=3)
    for rank in range(3):
        boss.enter(0.0, rank, 1)
    coordinator: Any = boss.by_hand.role
    for claim in (10**9, 50_000, 2**40):
        boss.enter(1.0, 2, claim)
        assert coordinator.round == 2
    for rank in (0, 1):
        boss.enter(2.0, rank, 2)
    boss.enter(3.0, 0, 3)
    assert coordinator.round == 3


def test_the_coordinator_says_train_while_a_step_fits_into_what_the_slowest_still_needs() -> None:
    boss = Boss(variant="preprint")
    boss.enter(0.0, 0, 0)
    boss.enter(0.0, 1, 0)
    assert boss.query(3.0, 0, 1, 3.0), "worker 1 was never timed: it counts as the slowest"
    assert boss.query(6.0, 0, 2, 3.0)
    assert not boss.query(8.0, 1, 1, 8.0), "it is the slowest"
    assert not boss.query(9.0, 0, 3, 3.0), "the slowest is done"
    boss.enter(10.0, 0, 1)
    assert boss.query(13.0, 0, 1, 3.0), "the slowest has not begun this round"
    boss.enter(14.0, 1, 1)
    assert boss.query(16.0, 0, 2, 3.0), "6 s are left"
    assert boss.query(19.0, 0, 3, 3.0), "3 s are left"
    assert not boss.query(19.5, 0, 4, 3.0), "2.5 s are left"
    decisions = boss.by_hand.decisions()
    assert [(rank, verdict) for rank, verdict, _ in decisions] == [
        (0, "train"),
        (1, "train"),
        (1, "sync"),
        (0, "sync"),
        (0, "train"),
        (1, "train"),
        (0, "sync"),
    ]
    assert decisions[-1][2] == "its step of 3.000 s does not fit into the 2.500 s that worker 1 still needs"


def test_in_the_journal_version_the_time_to_hand_over_counts() -> None:
    boss = Boss()
    boss.enter(0.0, 0, 0)
    boss.enter(0.0, 1, 0)
    assert boss.query(7.9, 0, 1, 7.9)
    assert not boss.query(8.0, 1, 1, 8.0), "the slower one so far"
    assert not boss.query(15.8, 0, 2, 7.9)
    boss.enter(16.0, 1, 1)  # 0.2 s after the last of round 0
    boss.enter(16.8, 0, 1)  # 1 s after it: the link of worker 0 is slow
    assert not boss.query(24.0, 1, 1, 8.0), "8.2 s of worker 1 do not fit into the 1.7 s until worker 0 is due"
    assert not boss.query(24.7, 0, 1, 7.9)
    assert boss.by_hand.decisions()[-1][2] == "it is the slowest"


def test_who_asks_ahead_is_told_whether_one_more_fits_after_the_step_under_way() -> None:
    boss = Boss(variant="preprint")
    for rank in (0, 1):
        boss.enter(0.0, rank, 0)
    assert boss.query(3.0, 0, 1, 3.0)
    assert not boss.query(10.0, 1, 1, 10.0)
    for rank in (0, 1):
        boss.enter(10.0, rank, 1)
    assert not boss.query(10.0, 1, 0, 10.0, ahead=1), "the slowest makes the step it is in, and no other"
    assert boss.query(10.0, 0, 0, 3.0, ahead=1), "two steps of 3 s fit into 10 s"
    assert boss.query(13.0, 0, 1, 3.0, ahead=1), "two more into 7 s"
    assert not boss.query(16.0, 0, 2, 3.0, ahead=1), "but not into 4 s"


def test_the_cap_ends_a_round_whatever_fits() -> None:
    _, work = run((8.0, 1.1), until=200, cap=5)
    assert {work.steps[round, 1] for round in range(20)} == {5}
    assert {work.steps[round, 0] for round in range(1, 20)} == {1}


def test_asking_ahead_takes_the_way_to_the_coordinator_out_of_every_step() -> None:
    """At 50 ms to the coordinator and back, a step of 0.1 s takes half as long again; asking ahead hides it."""
    slow_link = {"latency_s": 0.025, "until": 400, "variant": "preprint"}
    (_, plain), (_, ahead) = (run((8.0, 0.1), delayed_ack=delayed, **slow_link) for delayed in (False, True))
    assert max(plain.steps[round, 1] for round in range(1, 40)) < 55
    assert min(ahead.steps[round, 1] for round in range(1, 40)) > 75
    assert {ahead.steps[round, 0] for round in range(1, 40)} == {1}


@pytest.mark.parametrize(("smoothing", "trains_on"), [("last", False), ("median:3", True)])
def test_one_slow_step_does_not_move_the_median(smoothing: str, trains_on: bool) -> None:
    boss = Boss(variant="preprint", smoothing=smoothing)
    for rank in (0, 1):
        boss.enter(0.0, rank, 0)
    assert boss.query(0.5, 0, 1, 0.5)
    assert not boss.query(8.0, 1, 1, 8.0)
    for rank in (0, 1):
        boss.enter(10.0, rank, 1)
    assert boss.query(10.5, 0, 1, 0.5)
    assert boss.query(15.5, 0, 2, 5.0) is trains_on, "2.5 s are left"


both_ways = pytest.mark.parametrize("delayed_ack", [False, True])


@both_ways
def test_the_slowest_makes_exactly_one_step_a_round_and_others_what_fits(delayed_ack: bool) -> None:
    seconds = (8.0, 1.1, 3.0, 7.9)
    _, work = run(seconds, until=400, delayed_ack=delayed_ack)
    for round in range(1, 45):
        assert [work.steps[round, rank] for rank in range(4)] == [max(1, int(8.0 / c)) for c in seconds]


def test_in_the_first_round_nobody_overshoots_the_slowest_by_more_than_one_step() -> None:
    seconds = (8.0, 1.1, 3.0, 7.9)
    _, work = run(seconds, until=30)
    assert work.steps[0, 0] == 2, "the first step of a worker is cold, so its second is timed"
    for rank, c in enumerate(seconds):
        assert 16.0 - c < work.steps[0, rank] * c < 16.0 + c + 0.01


def test_nobody_idles_longer_than_one_step_of_its_own() -> None:
    records: list[Record] = []
    seconds = (8.0, 1.1, 3.0, 0.5)
    run(seconds, until=400, trace=records.append)
    waits = [r for r in records if isinstance(r, Span) and r.activity == "waiting" and r.at > 20]
    for rank, c in enumerate(seconds[1:], start=1):
        assert max(r.seconds for r in waits if r.rank == rank) < c
    assert max(r.seconds for r in waits if r.rank == 0) < 0.01, "nobody keeps the slowest waiting"


@both_ways
def test_equal_machines_make_one_step_each(delayed_ack: bool) -> None:
    _, work = run((2.0,) * 4, until=100, delayed_ack=delayed_ack)
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


@pytest.mark.parametrize("delayed_ack", [False, True])
@pytest.mark.parametrize("jitter", [0.0, 0.05])
def test_workers_three_times_as_fast_make_three_steps_a_round(delayed_ack: bool, jitter: float) -> None:
    """The third ends a little after the slowest: by the way to the coordinator, and by what the times of steps vary."""
    work = Rounds(lambda rank, rng: (0.03, 0.03, 0.09)[rank] * (1 + jitter * rng.random()))
    scheme = make("esync", {"delayed_ack": delayed_ack})
    work.sim = Simulation(scheme, Ghost(100), work, workers=3, servers=1, latency_s=2e-4)
    work.sim.run(until=20)
    rounds = range(2, work.sim.worker(0).round - 1)
    assert len(rounds) > 150
    assert {work.steps[round, 2] for round in rounds} == {1}
    assert {work.steps[round, rank] for round in rounds for rank in (0, 1)} == {3}


def test_a_step_that_ends_late_adds_at_least_what_the_wait_for_it_costs() -> None:
    """All of them together make a step in 1 / (1 / 1 + 1 / 0.4 + 1 / 0.4) = 0.17 s, and the third of 0.4 s ends 0.2 s
    late; of 0.38 s it is 0.14 s."""
    _, slower = run((1.0, 0.4, 0.4), until=50, overrun=1.0)
    _, faster = run((1.0, 0.38, 0.38), until=50, overrun=1.0)
    for rank in (1, 2):
        assert {slower.steps[round, rank] for round in range(2, 20)} == {2}
        assert {faster.steps[round, rank] for round in range(2, 20)} == {3}


def test_the_slowest_is_found_anew_when_speeds_change() -> None:
    work = Rounds(lambda rank, rng: (4.0 if work.sim.now < 100 else 0.6, 1.5)[rank])
    scheme = make("esync", {"delayed_ack": False, "overrun": 0.0})
    work.sim = Simulation(scheme, Ghost(10), work, workers=2, servers=0, latency_s=1e-6)
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
