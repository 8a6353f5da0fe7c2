"""Chen et al., Semi-Dynamic Load Balancing: Efficient Distributed Learning in Non-Dedicated Environments, SoCC 2020."""

from collections import defaultdict
from random import Random

import pytest

from paceline.core.effects import Compute, Computed
from paceline.core.scheme import make
from paceline.core.trace import Decided, Record
from paceline.core.vector import Ghost
from paceline.schemes import lbbsp
from paceline.sim import LocalSteps, Simulation
from tests.papers.sentences import says

SECONDS = (0.1, 0.2, 0.4, 0.8)
"""Of a step of 32 samples."""
OWN = 32


class Watched(LocalSteps):
    """Notes the batches of every round, and when each round begins."""

    def __init__(self, **more: object) -> None:
        super().__init__(lambda rank, rng: SECONDS[rank] * self.factor(rank), samples=lambda rank: OWN)
        self.rounds: dict[int, dict[int, int]] = defaultdict(dict)
        self.began: dict[int, float] = {}
        self.slowdown: dict[int, float] = {}

    def factor(self, rank: int) -> float:
        return self.slowdown.get(rank, 1.0)

    def compute(self, rank: int, wanted: Compute, rng: Random) -> Computed:
        computed = super().compute(rank, wanted, rng)
        round = self.sim.worker(rank).round  # type: ignore[attr-defined]
        self.rounds[round][rank] = computed.samples
        self.began.setdefault(round, self.sim.now)
        return computed

    def simulate(self, servers: int = 1, trace: list[Record] | None = None, **parameters: object) -> Simulation:
        note = None if trace is None else trace.append
        self.sim = Simulation(
            make("lbbsp", parameters), Ghost(10), self, workers=4, servers=servers, latency_s=1e-6, trace=note
        )
        return self.sim

    def last_round_seconds(self) -> float:
        last = max(self.began)
        return self.began[last] - self.began[last - 1]


@pytest.mark.parametrize("servers", [0, 1, 2])
def test_on_steady_speeds_a_round_takes_the_global_batch_over_the_sum_of_speeds(servers: int) -> None:
    """ "A step then lasts X / sum(v_j) for everybody, where BSP takes the step of the slowest." """
    assert says(lbbsp, "A step then lasts X / sum(v_j) for everybody, where BSP takes the step of the slowest.")
    work = Watched()
    work.simulate(servers).run(until=30)
    ideal = 4 * OWN / sum(OWN / s for s in SECONDS)
    assert work.began[1] - work.began[0] == pytest.approx(max(SECONDS), rel=1e-3)  # their own batches, as BSP
    # A whole sample of the slowest is what rounding may cost.
    assert ideal <= work.last_round_seconds() < ideal + max(SECONDS) / OWN


def test_the_batches_of_every_round_sum_to_the_global_batch() -> None:
    """ "Whole samples are dealt so that the largest x_i / v_i is smallest, and sum to X exactly." """
    assert says(lbbsp, "Whole samples are dealt so that the largest x_i / v_i is smallest, and sum to X exactly.")
    work = Watched()
    sim = work.simulate(global_batch=101, hysteresis=0.0, smoothing="last")
    for n in range(1, 20):  # speeds that never stand still
        work.slowdown = {rank: 1 + (7 * n + 3 * rank) % 5 for rank in range(4)}
        sim.run(until=2.0 * n)
    complete = [sizes for sizes in work.rounds.values() if len(sizes) == 4]
    assert len(complete) > 10
    assert {sum(sizes.values()) for sizes in complete} == {101}
    assert len({tuple(sizes[rank] for rank in range(4)) for sizes in complete}) > 5


def test_load_is_balanced_at_iteration_boundaries() -> None:
    """ "boundaries, being non-intrusive to intra-iteration execution": sizes change between rounds, with a reason."""
    assert says(lbbsp, "boundaries, being non-intrusive to intra-iteration execution")
    work, records = Watched(), list[Record]()
    work.simulate(trace=records).run(until=10)
    resized = {rank: size for rank, size in work.rounds[max(work.rounds) - 1].items() if size != OWN}
    decisions = [r for r in records if isinstance(r, Decided) and r.party == "coordinator"]
    last = {r.rank: r.verdict for r in decisions}
    assert {rank: f"{size} samples" for rank, size in resized.items()}.items() <= last.items()
    assert len(resized) >= 3
    # Decided once, and steady from then on.
    assert len(decisions) <= 2 * 4


def test_a_worker_that_becomes_slow_is_given_less() -> None:
    work = Watched()
    sim = work.simulate().run(until=10)
    before = work.rounds[max(work.rounds) - 1]
    work.slowdown = {0: 4.0}
    sim.run(until=40)
    after = work.rounds[max(work.rounds) - 1]
    assert after[0] < before[0] / 2
    assert all(after[rank] > before[rank] for rank in (1, 2, 3))
    assert sum(after.values()) == sum(before.values()) == 4 * OWN


def test_when_a_worker_leaves_the_others_take_its_part() -> None:
    work = Watched()
    sim = work.simulate().run(until=10)
    sim.leave(0)
    sim.run(until=30)
    assert sum(work.rounds[max(work.rounds) - 1].values()) == 4 * OWN
    assert set(work.rounds[max(work.rounds) - 1]) == {1, 2, 3}
