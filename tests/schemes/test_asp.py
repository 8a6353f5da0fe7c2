import pytest

from paceline.core.scheme import make
from paceline.core.trace import Applied, Record
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps, Simulation
from tests.role_driver import server


def test_every_push_is_applied_and_answered_at_once() -> None:
    asp = server("asp", workers=3)
    for count, rank in enumerate((0, 0, 2, 0), start=1):
        answers = asp.push(rank, clock=asp.role.clocks[rank] + 1)
        assert set(answers) == {rank}
        assert answers[rank].version == count
    assert asp.role.w == [-4.0]


def test_staleness_counts_updates_since_the_weights_left() -> None:
    asp = server("asp", workers=2, weighting="inverse")
    for clock in (1, 2, 3):
        asp.push(0, clock)
    asp.push(1, clock=1)
    assert [(u.staleness, u.weight) for u in asp.updates()] == [(0, 1.0), (0, 1.0), (0, 1.0), (3, 0.25)]
    assert asp.role.w == [-3.25]


@pytest.mark.parametrize("servers", [1, 3])
def test_each_worker_goes_at_its_own_pace(servers: int) -> None:
    work = LocalSteps(lambda rank, rng: (1.0, 2.0, 10.0)[rank])
    sim = Simulation(make("asp", {}), Ghost(9), work, workers=3, servers=servers, latency_s=1e-6).run(until=100.5)
    assert sim.steps == [100, 50, 10]


def test_with_n_equal_workers_in_turn_staleness_settles_at_n_less_one() -> None:
    records: list[Record] = []
    work = LocalSteps(lambda rank, rng: 1.0)
    Simulation(make("asp", {}), Ghost(9), work, workers=5, trace=records.append).run(until=10)
    late = [record.staleness for record in records if isinstance(record, Applied)]
    assert late[:5] == [0, 1, 2, 3, 4]
    assert set(late[5:]) == {4}
