from random import Random

import numpy as np

from paceline.core.scheme import make
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps, Simulation
from tests.role_driver import server


def test_who_reports_while_somebody_is_too_far_ahead_is_held_until_all_have_reported() -> None:
    partial = server("partial", workers=3, max_advance=2)
    assert set(partial.push(0, clock=1)) == {0}
    assert partial.push(0, clock=2) == {}
    assert partial.push(1, clock=1) == {}
    assert set(partial.push(2, clock=1)) == {0, 1, 2}
    assert partial.role.w == [-4.0], "what those who are held sent counts at once"
    assert partial.decisions() == [
        (0, "wait", "somebody is 2 ahead: waits for a report of workers 1, 2"),
        (1, "wait", "somebody is 2 ahead: waits for a report of worker 2"),
    ]


def test_after_lining_up_all_count_from_the_same_number() -> None:
    partial = server("partial", workers=2, max_advance=2)
    partial.push(0, clock=1)
    partial.push(0, clock=2)
    assert set(partial.push(1, clock=1)) == {0, 1}
    assert set(partial.push(0, clock=3)) == {0}, "one ahead again, not two"
    assert partial.push(0, clock=4) == {}


def test_a_leaver_is_not_waited_for() -> None:
    partial = server("partial", workers=3, max_advance=2)
    partial.push(0, clock=1)
    partial.push(0, clock=2)
    partial.push(1, clock=1)
    assert set(partial.gone(2)) == {0, 1}
    assert set(partial.push(0, clock=3)) == {0}


def test_only_the_first_of_several_shards_holds_workers_back() -> None:
    for servers in (1, 4):
        work = LocalSteps(lambda rank, rng: rng.expovariate(1.0))
        sim = Simulation(make("partial", {"max_advance": 3}), Ghost(64), work, workers=6, servers=servers, seed=servers)
        spread: set[int] = set()
        sim.run(until=400, stop=lambda sim: spread.add(sim.server(0).lap.high - sim.server(0).lap.low))  # noqa: B023
        assert min(sim.steps) > 100
        assert max(spread) == 3
        assert [len(sim.server(shard).waiting) for shard in range(1, servers)] == [0] * (servers - 1)


def test_a_worker_that_was_held_goes_on_from_the_weights_of_the_barrier() -> None:
    seen: list[np.ndarray] = []

    def gradient(rank: int, w: np.ndarray) -> np.ndarray:
        seen.append(w)
        return np.ones(8)

    def seconds(rank: int, rng: Random) -> float:
        return 1.0 + rank / 8

    sim = Simulation(
        make("partial", {"max_advance": 1}), np.zeros(8), LocalSteps(seconds, gradient), workers=4, servers=2
    )
    sim.run(until=20)
    turns = [seen[turn : turn + 4] for turn in range(0, len(seen) - 4, 4)]
    assert len(turns) > 8
    for turn in turns:
        assert all((w == turn[0]).all() for w in turn)
