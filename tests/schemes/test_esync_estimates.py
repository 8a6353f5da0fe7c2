"""ESync with estimates that are wrong: every one is corrected within a round or two, whatever spoiled it."""

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from paceline.core.effects import Train, Trained
from paceline.core.scheme import make
from paceline.core.vector import Ghost
from paceline.schemes.esync import Entered, ESync, LocalStepsDone, Query
from paceline.sim import LocalSteps, Simulation
from tests.role_driver import ByHand

SECONDS = (0.05, 0.05, 0.1, 0.4)
VARIED = [
    {},
    {"variant": "preprint"},
    {"delayed_ack": False},
    {"smoothing": "ema:0.5"},
    {"smoothing": "median:5"},
    {"cap": 3},
]
under_every_variation = pytest.mark.parametrize("parameters", VARIED, ids=str)


class Rounds(LocalSteps):
    """Local steps by round and rank. `seconds` is asked for the rank, the step of its incarnation, and the time."""

    sim: Simulation

    def __init__(self, seconds: Callable[[int, int, float], float]) -> None:
        super().__init__(lambda rank, rng: seconds(rank, self.made[rank], self.sim.now))
        self.made: Counter[int] = Counter()
        self.steps: Counter[tuple[int, int]] = Counter()

    def train(self, rank: int, wanted: Train, rng: Random) -> Trained:
        round = getattr(self.sim.worker(rank), "inner", self.sim.worker(rank)).round
        trained = super().train(rank, wanted, rng)
        self.steps[round, rank] += wanted.steps
        self.made[rank] += wanted.steps
        return trained


def run(
    seconds: Callable[[int, int, float], float],
    until: float,
    workers: int = 4,
    scheme: str = "esync",
    **parameters: object,
) -> Rounds:
    work = Rounds(seconds)
    work.sim = Simulation(make(scheme, parameters), Ghost(100), work, workers=workers, servers=1, latency_s=1e-5)
    work.sim.run(until=until)
    return work


def rate(work: Rounds, rank: int, since: float, until: float) -> float:
    work.sim.run(until=since)
    before = work.sim.steps[rank]
    work.sim.run(until=until)
    return (work.sim.steps[rank] - before) / (until - since)


@under_every_variation
@pytest.mark.parametrize("stalled", range(4))
def test_after_one_slow_step_the_worker_is_as_fast_as_before(parameters: dict[str, object], stalled: int) -> None:
    def seconds(rank: int, step: int, now: float) -> float:
        return SECONDS[rank] * (40 if rank == stalled and step == 50 else 1)

    work = run(seconds, 0.0, **parameters)
    undisturbed = run(lambda rank, step, now: SECONDS[rank], 0.0, **parameters)
    for rank in range(4):
        assert rate(work, rank, 80, 100) == pytest.approx(rate(undisturbed, rank, 80, 100), rel=0.05)


@pytest.mark.parametrize("parameters", [{}, {"variant": "preprint"}, {"delayed_ack": False}], ids=str)
def test_one_slow_step_costs_the_round_it_is_in_and_at_most_the_next(parameters: dict[str, object]) -> None:
    def seconds(rank: int, step: int, now: float) -> float:
        return SECONDS[rank] * (40 if rank == 0 and step == 48 else 1)

    work = run(seconds, 30.0, **parameters)
    usual = work.steps[2, 0]
    assert usual >= 7
    spoiled = [round for round in range(2, 40) if work.steps[round, 0] < usual - 1]
    assert spoiled
    assert spoiled[-1] - spoiled[0] <= 1
    assert work.steps[spoiled[-1] + 1, 0] >= usual - 1


@under_every_variation
def test_the_slowest_that_becomes_fast_gets_up_again(parameters: dict[str, object]) -> None:
    def seconds(rank: int, step: int, now: float) -> float:
        return 0.05 if rank == 3 and now > 20 else SECONDS[rank]

    work = run(seconds, 0.0, **parameters)
    assert rate(work, 3, 10, 20) == pytest.approx(2.5, rel=0.1)
    assert rate(work, 3, 40, 60) > 0.5 * min(3 / 0.15, 20.0) * (0.6 if "cap" in parameters else 1)


def test_under_hybrid_too() -> None:
    def seconds(rank: int, step: int, now: float) -> float:
        return SECONDS[rank] * (40 if rank == 0 and step == 100 else 1)

    work = run(seconds, 0.0, scheme="hybrid", phases="bsp until 5 steps; esync")
    assert rate(work, 0, 60, 80) == pytest.approx(20, rel=0.2)


@under_every_variation
def test_no_plan_is_made_from_a_cold_first_step(parameters: dict[str, object]) -> None:
    def seconds(rank: int, step: int, now: float) -> float:
        return 0.05 * (100 if rank == 0 and step == 0 else 1)

    work = run(seconds, 30.0, workers=2, **parameters)
    assert all(work.steps[round, rank] <= 2 for rank in (0, 1) for round in range(2, 50))


def test_no_plan_is_made_from_the_cold_first_step_of_a_newcomer() -> None:
    def seconds(rank: int, step: int, now: float) -> float:
        return 0.05 * (100 if rank == 0 and 20 < now < 22 else 1)

    work = Rounds(seconds)
    work.sim = Simulation(make("esync", {}), Ghost(100), work, workers=2, servers=1, latency_s=1e-5)
    work.sim.run(until=10)
    work.sim.crash(0)
    work.sim.run(until=21)
    work.sim.join(0)
    first = work.sim.worker(1).round + 1  # of its cold step: it passes through the round in which it joins
    work.sim.run(until=40)
    assert all(work.steps[round, rank] <= 2 for rank in (0, 1) for round in range(first + 1, first + 50))


class Boss:
    """The coordinator by hand, of workers none of whose steps may end late."""

    def __init__(self, workers: int = 2, **parameters: object) -> None:
        self.by_hand = ByHand(ESync.Coordinator, make("esync", {"overrun": 0.0, **parameters}), workers)
        self.round = 0

    def enter(self, now: float, round: int, *ranks: int) -> None:
        self.round = round
        for rank in ranks:
            self.by_hand.on(rank, Entered(round=round), now)

    def query(self, now: float, rank: int, k: int, c: float, ahead: int = 1) -> bool:
        return self.by_hand.on(rank, Query(round=self.round, k=k, c=c, ahead=ahead), now)[rank].train

    def finished(self, now: float, rank: int, c: float) -> None:
        assert self.by_hand.on(rank, LocalStepsDone(round=self.round, c=c), now) == {}

    @classmethod
    def with_times(cls, *c: float, **parameters: object) -> "Boss":
        """Everybody has been timed; round 1 begins at 100 s."""
        boss = cls(len(c), **parameters)
        boss.enter(0.0, 0, *range(len(c)))
        for rank, seconds in enumerate(c):
            boss.query(seconds, rank, 1, seconds, ahead=0)
        boss.enter(100.0, 1, *range(len(c)))
        return boss


@pytest.mark.parametrize("variant", ["journal", "preprint"])
def test_a_time_counts_also_from_who_has_made_no_step_in_this_round(variant: str) -> None:
    boss = Boss.with_times(8.0, 1.0, variant=variant)
    assert boss.query(100.0, 0, 0, 0.25), "its last step took 0.25 s: it is not the slowest any more"
    assert not boss.query(100.0, 1, 0, 1.0)


def test_who_turns_out_to_be_fast_is_not_waited_for_longer_than_its_step() -> None:
    boss = Boss.with_times(8.0, 1.0, variant="preprint")
    assert not boss.query(100.0, 0, 0, 0.0), "believed the slowest"
    assert boss.query(100.0, 1, 0, 0.0)
    boss.finished(100.5, 0, 0.5)
    assert not boss.query(101.0, 1, 1, 1.0)


@pytest.mark.parametrize("smoothing", ["last", "ema:0.5", "median:5"])
def test_others_stop_once_the_slowest_has_finished_whatever_was_expected_of_it(smoothing: str) -> None:
    boss = Boss.with_times(8.0, 1.0, variant="preprint", smoothing=smoothing)
    assert not boss.query(100.0, 0, 0, 0.0)
    assert boss.query(100.0, 1, 0, 0.0)
    boss.finished(102.0, 0, 2.0)
    assert not boss.query(102.1, 1, 2, 1.0), "worker 0 has finished"


def test_while_the_slowest_hands_over_others_may_train_on() -> None:
    boss = Boss()
    boss.enter(0.0, 0, 0, 1)
    for rank in (0, 1):
        boss.query(8.0, rank, 2, 1.0, ahead=0)
        boss.finished(8.0, rank, 0.0)
    boss.enter(8.2, 1, 1)
    boss.enter(12.0, 1, 0)  # worker 0 needs 4 s to hand over, and 1 s for a step
    assert not boss.query(12.0, 0, 0, 0.0)
    assert boss.query(12.0, 1, 3, 1.0)
    boss.finished(13.0, 0, 1.0)
    assert boss.query(14.0, 1, 5, 1.0), "two steps of 1 s and 0.2 s fit into the 3 s that are left"
    assert not boss.query(15.0, 1, 6, 1.0), "but not into 2 s"


def test_a_worker_that_has_left_is_waited_for_by_nobody_whatever_still_arrives_from_it() -> None:
    boss = Boss.with_times(8.0, 1.0, 1.0, variant="preprint")
    boss.by_hand.gone(0)
    boss.finished(101.0, 0, 50.0)
    boss.by_hand.on(0, Entered(round=1), 101.0)
    boss.by_hand.on(0, Query(round=1, k=1, c=50.0, ahead=0), 101.0)
    assert not boss.query(102.0, 1, 1, 1.0, ahead=0), "the slowest of those that are left"
