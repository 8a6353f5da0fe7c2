from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.effects import Effect, Mean, Train, Trained
from paceline.core.errors import ConfigError
from paceline.core.scheme import make
from paceline.core.trace import Record, Span
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps, Simulation
from tests.conformance.schemes_table import watched
from tests.schemes.fragments import delta, server

GOALS = np.array([[1.0, 0.0, 2.0, 4.0], [5.0, 2.0, -2.0, 0.0]])


def local(x: Any, steps: int) -> Any:
    """Both workers' weights after so many steps."""
    return GOALS + 0.9**steps * (x - GOALS)


def run(rounds: int, servers: int = 1, name: str = "diloco", **parameters: Any) -> Simulation:
    work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w - GOALS[rank], lr=0.1)
    sim = Simulation(make(name, parameters), np.zeros(4), work, workers=2, servers=servers)
    return sim.run(stop=lambda sim: min(sim.worker(r).round for r in (0, 1)) == rounds)


@pytest.mark.parametrize("servers", [0, 1, 3])
def test_the_outer_step_is_nesterovs(servers: int) -> None:
    w, v = np.zeros(4), np.zeros(4)
    for _ in range(5):
        delta = w - local(w, 3).mean(axis=0)
        v = 0.8 * v + delta
        w = w - 0.5 * (delta + 0.8 * v)
    sim = run(5, servers, h=3, outer_lr=0.5, outer_momentum=0.8)
    assert sim.model() == pytest.approx(w)
    assert sim.worker(1).x == pytest.approx(w), "everybody starts the next round at the global weights"


def test_with_rate_one_and_no_momentum_it_is_local_sgd() -> None:
    plain = run(5, name="localsgd", tau=3).model()
    assert run(5, h=3, outer_lr=1.0, outer_momentum=0.0).model() == pytest.approx(plain)


@pytest.mark.parametrize("servers", [0, 1, 2])
def test_fragments_are_exchanged_in_turn_and_mixed_in_when_they_come_back(servers: int) -> None:
    x, w, v = np.zeros((2, 4)), np.zeros(4), np.zeros(4)
    for round in range(6):
        p = slice(0, 2) if round % 2 == 0 else slice(2, 4)
        x = local(x, 3 if round == 0 else 2)
        delta = (w - x.mean(axis=0))[p]
        x = local(x, 1)
        v[p] = 0.8 * v[p] + delta
        w[p] -= 0.5 * (delta + 0.8 * v[p])
        x[:, p] = 0.25 * x[:, p] + 0.75 * w[p]
    parameters = {"h": 6, "fragments": 2, "delay": 1, "alpha": 0.25, "outer_lr": 0.5, "outer_momentum": 0.8}
    sim = run(6, servers, **parameters)
    assert sim.model() == pytest.approx(w)
    assert [list(sim.worker(rank).x) for rank in (0, 1)] == [pytest.approx(list(own)) for own in x]


def test_a_fragment_is_all_that_travels() -> None:
    lengths = []

    def see(effect: Effect) -> None:
        if isinstance(effect, Mean):
            lengths.append(len(effect.v))

    scheme = make("diloco", {"h": 9, "fragments": 3})
    sim = Simulation(scheme, Ghost(10), LocalSteps(lambda rank, rng: 1.0), workers=1, servers=1)
    role = sim.worker(0)
    original: Callable[[], Any] = role.run
    role.run = lambda: watched(original(), see)
    sim.restart(0)
    sim.run(until=20)
    assert lengths == [3, 3, 4, 3, 3, 4]


def seconds_waiting(delay: int) -> float:
    """Of worker 0, behind a link on which a model takes a second each way."""
    records: list[Record] = []
    scheme = make("diloco", {"h": 8, "delay": delay})
    work = LocalSteps(lambda rank, rng: 1.0)
    sim = Simulation(scheme, Ghost(12_500_000), work, workers=2, servers=1, bandwidth_gbps=0.4, trace=records.append)
    sim.run(until=100)
    return sum(r.seconds for r in records if isinstance(r, Span) and r.activity != "computing" and r.rank == 0)


def test_a_delay_hides_the_exchange_behind_the_next_steps() -> None:
    assert seconds_waiting(delay=0) > 5
    assert seconds_waiting(delay=5) == 0


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"h": 10, "fragments": 3}, "must be a multiple of"),
        ({"h": 10, "fragments": 2, "delay": 5}, "5 steps later; take less"),
        ({"h": 10, "delay": 2, "memory": "average"}, "nobody pauses to average"),
    ],
)
def test_what_cannot_work_is_refused(parameters: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        make("diloco", parameters).check(4, 1)


@pytest.mark.parametrize("kill_at", range(3, 60, 4))
def test_who_is_killed_with_a_fragment_on_its_way_hands_it_over_once(kill_at: int) -> None:
    """Plain outer steps along constant gradients: every local step that counts moves the model by one."""
    work = LocalSteps(lambda rank, rng: 1.0 + rank, lambda rank, w: w * 0.0 - 1.0, lr=1.0)
    parameters = {"h": 6, "fragments": 2, "delay": 1, "alpha": 0.0, "outer_lr": 1.0, "outer_momentum": 0.0}
    sim = Simulation(make("diloco", parameters), np.zeros(4), work, workers=2, servers=2)
    sim.run(max_events=kill_at)
    sim.restart(1)
    sim.run(stop=lambda sim: min(sim.worker(r).round for r in (0, 1)) == 8)
    # The first turns of the fragments have 3 and 6 steps; of each later 6 the one made on the way is forgotten.
    assert sim.model().tolist() == [3 + 3 * 5] * 2 + [6 + 3 * 5] * 2


def test_a_repeat_changes_nothing_and_is_answered() -> None:
    s = server(outer_lr=1.0)
    before = s.on(0, delta(1.0, 1))[0].w
    assert s.on(0, delta(9.0, 1))[0].w == before
    assert [(u.ranks, u.staleness) for u in s.updates()] == [((0,), 0)]


def test_all_exchange_about_equally_often() -> None:
    class Counted(LocalSteps):
        steps: dict[int, list[int]]

        def train(self, rank: int, wanted: Train, rng: Random) -> Trained:
            self.steps[rank].append(wanted.steps)
            return super().train(rank, wanted, rng)

    work = Counted(lambda rank, rng: (0.1, 0.2, 1.0)[rank])
    work.steps = {0: [], 1: [], 2: []}
    Simulation(make("asyncdiloco", {"h": 20}), Ghost(3), work, workers=3, servers=1).run(until=200)
    assert [work.steps[rank][-1] for rank in range(3)] == [20, 10, 2]
    assert max(map(len, work.steps.values())) - min(map(len, work.steps.values())) <= 20


def test_a_share_of_the_momentum_beyond_one_nth_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be at most 1 / N = 0.25"):
        make("asyncdiloco", {"c": 0.3}).check(4, 1)
    make("asyncdiloco", {"c": 0.3, "buffer": 3}).check(4, 1)
