import pytest

from paceline.core.errors import ConfigError
from paceline.core.scheme import make
from paceline.core.trace import Applied, Record
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps, Simulation
from tests.role_driver import server


def test_the_first_k_make_the_update_and_the_rest_is_dropped() -> None:
    ksync = server("ksync", workers=3, k=2)
    assert ksync.push(0, clock=1, g=2.0) == {}
    assert set(ksync.push(2, clock=1, g=4.0)) == {0, 2}
    assert ksync.role.w == [-3.0]
    assert set(ksync.push(1, clock=1, g=100.0)) == {1}
    assert ksync.role.w == [-3.0]
    assert ksync.decisions() == [
        (0, "wait", "1 of the 2 contributions of an update are there"),
        (1, "dropped", "2 others were first: 1 update late"),
    ]


def test_a_late_contribution_is_folded_into_the_next_update() -> None:
    ksync = server("ksync", workers=3, k=2, late="fold")
    ksync.push(0, clock=1)
    ksync.push(2, clock=1)
    assert ksync.push(1, clock=1, g=4.0) == {}
    assert set(ksync.push(0, clock=2, g=2.0)) == {0, 1}
    assert ksync.role.w == [-4.0]
    assert [(u.ranks, u.staleness) for u in ksync.updates()] == [((0, 2), 0), ((0, 1), 1)]


def test_k_batches_may_come_from_one_worker_which_never_waits() -> None:
    ksync = server("ksync", workers=2, k=3, variant="batch")
    for clock in (1, 2):
        assert ksync.push(0, clock=clock, g=3.0)[0].version == 0, "the next batch is computed at the same weights"
    assert ksync.push(0, clock=3, g=3.0)[0].version == 1
    assert ksync.role.w == [-3.0]
    assert ksync.push(1, clock=1, g=9.0)[1].version == 1
    assert ksync.role.w == [-3.0], "it was computed at weights that are gone"


def test_by_default_the_slowest_is_the_backup() -> None:
    assert server("ksync", workers=5).role.k == 4
    assert server("ksync", workers=1).role.k == 1


def test_more_contributions_than_workers_need_batches() -> None:
    make("ksync", {"k": 5, "variant": "batch"}).check(4, 1)
    with pytest.raises(ConfigError, match=r"4 workers cannot make an update of 5; .* --ksync.variant batch"):
        make("ksync", {"k": 5}).check(4, 1)


def test_when_workers_leave_those_who_are_left_are_enough() -> None:
    ksync = server("ksync", workers=3, k=2)
    ksync.push(0, clock=1)
    ksync.gone(1)
    assert set(ksync.gone(2)) == {0}


@pytest.mark.parametrize("variant", ["sync", "batch"])
def test_by_default_k_follows_the_workers_that_are_left(variant: str) -> None:
    ksync = server("ksync", workers=4, variant=variant)
    ksync.push(0, clock=1)
    ksync.push(1, clock=1)
    assert ksync.updates() == [], "three of four make an update"
    ksync.gone(3)
    assert [u.ranks for u in ksync.updates()] == [(0, 1)], "two of three are there already"
    ksync.gone(2)
    ksync.push(0, clock=2)
    assert [u.ranks for u in ksync.updates()][1:] == [(0,)], "one of two"
    ksync.came(2)
    ksync.came(3)
    ksync.push(2, clock=1)
    ksync.push(0, clock=3)
    ksync.push(3, clock=1)
    assert [u.ranks for u in ksync.updates()][2:] == [(0, 2, 3)], "three of four again"


def test_a_k_that_was_given_stays_and_all_who_are_left_are_enough() -> None:
    ksync = server("ksync", workers=4, k=3)
    ksync.gone(3)
    ksync.push(0, clock=1)
    ksync.push(1, clock=1)
    assert ksync.updates() == []
    ksync.gone(2)
    assert [u.ranks for u in ksync.updates()] == [(0, 1)]
    assert ksync.role.k == 2


def test_one_of_two_that_is_left_with_a_slow_one_does_not_wait_for_it() -> None:
    work = LocalSteps(lambda rank, rng: 100.0 if rank == 1 else 1.0)
    sim = Simulation(make("ksync", {}), Ghost(8), work, workers=3)
    sim.leave(2)
    sim.run(until=50)
    assert sim.steps[0] > 40


@pytest.mark.parametrize("late", ["drop", "fold"])
def test_shards_that_see_pushes_in_different_orders_never_hold_workers_that_wait_for_one_another(late: str) -> None:
    for seed in range(10):
        work = LocalSteps(lambda rank, rng: rng.uniform(0.9, 1.1))
        scheme = make("ksync", {"k": 3, "late": late})
        sim = Simulation(scheme, Ghost(10_000_000), work, workers=5, servers=4, seed=seed)
        assert min(sim.run(until=100).steps) > 30, f"seed {seed}"


def test_with_k_of_all_it_makes_the_rounds_of_bsp() -> None:
    def rounds(name: str, **parameters: object) -> list[tuple[float, tuple[int, ...], int]]:
        records: list[Record] = []
        work = LocalSteps(lambda rank, rng: (1 + rank) * rng.uniform(0.5, 1.5))
        Simulation(make(name, dict(parameters)), Ghost(8), work, workers=3, trace=records.append).run(until=60)
        return [(round(r.at, 6), r.ranks, r.version) for r in records if isinstance(r, Applied)]

    assert rounds("ksync", k=3) == rounds("bsp")
