"""Groups follow the speeds of workers, and are the same on every shard."""

from random import Random

import numpy as np
import pytest

from paceline.core.adaptive.regrouping import GroupingCoordinator, Move, Timed
from paceline.core.paramserver.gated_server import Push
from paceline.core.role import RoleContext
from paceline.core.scheme import make
from paceline.core.trace import Applied, Decided, Record
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps, Simulation
from tests.role_driver import server


def drifting(at: float, servers: int = 1, seed: int = 0, **parameters: object) -> tuple[Simulation, list[Record]]:
    """Workers 0, 1, 2 are fast and 3, 4, 5 slow; from `at` on worker 2 is slow too. Nobody measured beforehand."""
    records: list[Record] = []

    def seconds(rank: int, rng: Random) -> float:
        slow = rank > 2 or (rank == 2 and sim.now >= at)
        return (3.0 if slow else 1.0) * rng.uniform(0.95, 1.05)

    sim = Simulation(
        make("gsp", dict(parameters)), Ghost(4096), LocalSteps(seconds), workers=6, servers=servers, seed=seed,
        trace=records.append,
    )  # fmt: skip
    return sim, records


def groups_of(sim: Simulation, shard: int) -> set[frozenset[int]]:
    return {frozenset(group.members) for group in sim.server(shard).rounds.values()}


SLOW_AND_FAST = {frozenset({0, 1, 2}), frozenset({3, 4, 5})}


def test_groups_are_found_while_training_where_nobody_measured() -> None:
    sim, records = drifting(at=1e9)
    assert groups_of(sim, 0) == {frozenset(range(6))}
    sim.run(until=30)
    assert groups_of(sim, 0) == SLOW_AND_FAST
    told = [r for r in records if isinstance(r, Decided) and r.party == "coordinator"]
    assert sorted((r.rank, r.verdict) for r in told) == [
        *((rank, "group 0,1,2") for rank in (0, 1, 2)),
        *((rank, "group 3,4,5") for rank in (3, 4, 5)),
    ]
    assert told[0].reason.startswith("2 groups by speed have a silhouette of 0.9")


@pytest.mark.parametrize("servers", [1, 3])
def test_a_worker_that_becomes_slow_changes_groups_on_every_shard_alike(servers: int) -> None:
    for seed in range(5):
        sim, records = drifting(at=60, servers=servers, seed=seed)
        sim.run(until=60)
        assert all(groups_of(sim, shard) == SLOW_AND_FAST for shard in range(servers))
        before = list(sim.run(until=260).steps)
        assert all(groups_of(sim, shard) == {frozenset({0, 1}), frozenset({2, 3, 4, 5})} for shard in range(servers))
        sim.run(until=300)
        assert min(np.subtract(sim.steps, before)) > 10, f"seed {seed}: nobody waits for ever"
        rounds = [[r.ranks for r in records if isinstance(r, Applied) and r.shard == s] for s in range(servers)]
        for rank in range(6):  # each worker has seen the same groups in the same order, whatever the shard
            assert len({tuple(ranks for ranks in of if rank in ranks)[:100] for of in rounds}) == 1


def test_speeds_that_jitter_change_nothing() -> None:
    sim, _ = drifting(at=1e9, regroup=2)
    sim.run(until=300)
    assert sim.coordinator.regrouper.number == 1
    assert groups_of(sim, 0) == SLOW_AND_FAST


def test_without_regrouping_nobody_asks_the_coordinator() -> None:
    sim, _ = drifting(at=1e9, regroup=0)
    sim.run(until=30)
    assert groups_of(sim, 0) == {frozenset(range(6))}
    assert sim.coordinator.regrouper.reports == 0


def test_a_leaver_told_to_join_a_group_is_not_waited_for_there() -> None:
    for leaver in range(6):
        for steps in range(3, 9):
            sim, _ = drifting(at=1e9, servers=2, seed=steps)
            sim.run(stop=lambda sim, steps=steps, leaver=leaver: sim.steps[leaver] >= steps)
            sim.leave(leaver)
            sim.run(until=sim.now + 20)
            before = list(sim.steps)
            sim.run(until=sim.now + 20)
            assert min(b - a for rank, (a, b) in enumerate(zip(before, sim.steps, strict=True)) if rank != leaver) >= 5


def test_a_group_does_not_wait_for_a_member_that_moved_and_did_not_push_its_part() -> None:
    """It repeats a clock at one server alone: there the push is answered and changes nothing."""
    by_hand = server("gsp", workers=3)
    push = {"g": np.zeros(1), "samples": 1}
    for rank in range(3):
        answers = by_hand.on(rank, Push(clock=1, **push))
    assert set(answers) == {0, 1, 2}
    assert set(by_hand.on(2, Push(clock=1, **push))) == {2}
    assert by_hand.on(0, Push(clock=2, **push)) == by_hand.on(1, Push(clock=2, **push)) == {}
    assert set(by_hand.on(2, Move(clock=2, group=(2,), number=1, **push))) == {0, 1, 2}


def test_a_new_group_does_not_wait_for_one_that_goes_on_in_the_group_from_which_the_others_moved() -> None:
    """It told this server alone another clock when it moved: there its move counts as a repetition."""
    gsp = server("gsp", workers=3)
    push = {"g": np.zeros(1), "samples": 1}
    for rank in range(3):
        gsp.push(rank, clock=1)
    for rank in (0, 1):
        assert gsp.on(rank, Move(clock=2, group=(0, 1, 2), number=1, **push)) == {}
    assert set(gsp.on(2, Move(clock=1, group=(0, 1, 2), number=1, **push))) == {2}
    assert set(gsp.on(2, Push(clock=2, **push))) == {0, 1, 2}
    assert gsp.on(0, Push(clock=3, **push)) == {}
    assert set(gsp.on(1, Push(clock=3, **push))) == {0, 1}


def test_a_new_group_waits_for_one_that_has_still_rounds_to_go_in_its_former_group() -> None:
    gsp = server("gsp", workers=2, groups="auto")
    push = {"g": np.zeros(1), "samples": 1}
    for rank in (0, 1):
        assert gsp.on(rank, Move(clock=1, group=(rank,), number=1, **push)).keys() == {rank}
    assert gsp.on(0, Move(clock=2, group=(0, 1), number=2, **push)) == {}
    assert set(gsp.on(1, Push(clock=2, **push))) == {1}
    assert set(gsp.on(1, Move(clock=3, group=(0, 1), number=2, **push))) == {0, 1}


def test_those_of_a_new_group_meet_in_one_round_though_regroupings_without_a_move_came_between() -> None:
    gsp = server("gsp", workers=4, regroup=1)
    for rank in (0, 1, 2, 3):
        gsp.push(rank, clock=1)
    push = {"g": np.zeros(1), "samples": 1}
    assert set(gsp.on(0, Move(clock=2, group=(0, 1), number=3, **push))) == set()
    assert set(gsp.on(1, Move(clock=2, group=(0, 1), number=3, **push))) == {0, 1}


def test_a_newcomer_that_finds_nobody_whose_speed_is_known_gets_an_answer() -> None:
    place = RoleContext(me=0, workers=(0, 1), w=None, update=lambda w, g, samples: w)
    coordinator = GroupingCoordinator(make("gsp", {"regroup": 1}), place)
    for rank in (0, 1):
        list(coordinator.on_worker_left(0.0, rank))
    list(coordinator.on_worker_joined(1.0, 0))
    for done in range(4):
        (reply,) = coordinator.on(2.0 + done, 0, Timed(done=done, seconds=0.0))
        assert reply.message.group in ((), (0,))


def test_a_newcomer_that_names_a_time_before_its_first_step_is_answered_and_not_compared() -> None:
    place = RoleContext(me=0, workers=(0, 1), w=None, update=lambda w, g, samples: w)
    coordinator = GroupingCoordinator(make("gsp", {"regroup": 1}), place)
    for done in range(3):
        for rank in (0, 1):
            list(coordinator.on(0.0 + done, rank, Timed(done=done, seconds=1.0)))
    list(coordinator.on_worker_left(4.0, 1))
    list(coordinator.on_worker_joined(5.0, 1))
    (reply,) = coordinator.on(6.0, 1, Timed(done=0, seconds=1e-9))
    assert reply.message.group == (1,), "it begins alone"
    assert 1 not in coordinator.regrouper.seconds
