from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.collective.mean_server import Averaged
from paceline.core.effects import Effect, Mean, Start, Ticket, Train, Trained
from paceline.core.errors import ConfigError
from paceline.core.role import RoleContext
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


def seconds_waiting(**parameters: Any) -> float:
    """Of worker 0, behind a link on which a model takes a second each way."""
    records: list[Record] = []
    scheme = make("diloco", {"h": 8, **parameters})
    work = LocalSteps(lambda rank, rng: 1.0)
    sim = Simulation(scheme, Ghost(12_500_000), work, workers=2, servers=1, bandwidth_gbps=0.4, trace=records.append)
    sim.run(until=100)
    return sum(r.seconds for r in records if isinstance(r, Span) and r.activity != "computing" and r.rank == 0)


def test_a_delay_hides_the_exchange_behind_the_next_steps() -> None:
    assert seconds_waiting(delay=0) > 5
    assert seconds_waiting(delay=5) == 0


def nesterov(w: Any, v: Any, delta: Any) -> tuple[Any, Any]:
    v = 0.5 * v + delta
    return w - 0.4 * (delta + 0.5 * v), v


@pytest.mark.parametrize("servers", [0, 1, 2])
@pytest.mark.parametrize("parts", [1, 2])
def test_an_eager_worker_goes_on_with_its_part_and_the_means_before(servers: int, parts: int) -> None:
    """The box of eager updates in numpy, each quantity of each worker written out."""
    x, y, u, owed = np.zeros((2, 4)), np.zeros((2, 4)), np.zeros((2, 4)), np.zeros((2, 4))
    w, v, sent = np.zeros(4), np.zeros(4), None
    turns = [slice(4 * turn // parts, 4 * (turn + 1) // parts) for turn in range(parts)]
    for round in range(7):
        x = local(x, 6 // parts)
        if sent is not None:
            q, mean = turns[(round - 1) % parts], sent.mean(axis=0)
            w[q], v[q] = nesterov(w[q], v[q], mean)
            owed[:, q] += mean
        p = turns[round % parts]
        sent = (y - x)[:, p]
        y[:, p], u[:, p] = nesterov(y[:, p], u[:, p], sent / 2 + owed[:, p])
        owed[:, p] = -sent / 2
        x[:, p] = y[:, p]
    sim = run(7, servers, h=6, fragments=parts, eager=True, outer_lr=0.4, outer_momentum=0.5)
    assert sim.model() == pytest.approx(w)
    assert [list(sim.worker(rank).x) for rank in (0, 1)] == [pytest.approx(list(own)) for own in x]


def test_an_eager_worker_alone_is_plain_diloco_one_exchange_ahead_of_the_means() -> None:
    def alone(rounds: int, **parameters: Any) -> Any:
        work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w - GOALS[0], lr=0.1)
        sim = Simulation(make("diloco", {"h": 3, **parameters}), np.zeros(4), work, workers=1, servers=1)
        return sim.run(stop=lambda sim: sim.worker(0).round == rounds).worker(0)

    eager = alone(6, eager=True)
    assert eager.y == pytest.approx(alone(6).w)
    assert eager.w == pytest.approx(alone(5).w)


def test_an_eager_exchange_has_until_the_next_turn() -> None:
    assert seconds_waiting(eager=True) == 0
    assert seconds_waiting(eager=True, fragments=2) == 0


@pytest.mark.parametrize("kill_at", range(3, 60, 4))
def test_an_eager_worker_that_is_killed_hands_every_exchange_over_once(kill_at: int) -> None:
    """Along constant gradients every step of an exchange that is over has moved w by one."""
    work = LocalSteps(lambda rank, rng: 1.0 + rank, lambda rank, w: w * 0.0 - 1.0, lr=1.0)
    parameters = {"h": 6, "fragments": 2, "eager": True, "outer_lr": 1.0, "outer_momentum": 0.0}
    sim = Simulation(make("diloco", parameters), np.zeros(4), work, workers=2, servers=2)
    sim.run(max_events=kill_at)
    sim.restart(1)
    sim.run(stop=lambda sim: min(sim.worker(r).round for r in (0, 1)) == 8)
    # Seven exchanges are over: of the first fragment 3 steps and then three times 6, of the second three times 6.
    assert sim.model().tolist() == [3 + 3 * 6] * 2 + [3 * 6] * 2


def test_an_eager_worker_with_a_delta_that_is_not_finite_starts_from_the_common_weights() -> None:
    scheme = make("diloco", {"h": 3, "eager": True})
    context = RoleContext(me=0, workers=(0, 1), w=np.zeros(4), update=lambda w, g, samples: w)
    role = scheme.worker(1)(scheme, context)
    loop = role.run()
    assert isinstance(next(loop), Train)
    assert isinstance(loop.send(Trained(np.array([1.0, np.nan, 0.0, 0.0]), 4, 1.0)), Start)
    assert loop.send(Ticket()).x.tolist() == [0.0] * 4
    loop.send(Trained(np.ones(4), 4, 1.0))  # and waits for the mean, which had no part of this worker
    assert isinstance(loop.send(Averaged(v=np.ones(4), weight=4.0)), Start)
    assert np.isfinite(role.x).all()
    assert role.w == pytest.approx([0.7 * 1.9] * 4), "the others' step"


def test_a_newcomer_asks_for_the_mean_under_way_without_a_part_in_it() -> None:
    scheme = make("diloco", {"h": 3, "eager": True})
    context = RoleContext(me=1, workers=(0, 1), w=np.ones(4), update=lambda w, g, samples: w)
    role = scheme.worker(1)(scheme, context)
    role.load_join_state({"round": 5, "samples_seen": 40, "v": np.full(4, 2.0)})
    first = next(role.run())
    assert isinstance(first, Start)
    assert isinstance(first.effect, Mean)
    assert (first.effect.tag, first.effect.weight) == ("diloco/4", 0.0)
    assert role.u.tolist() == [2.0] * 4


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"h": 10, "fragments": 3}, "must be a multiple of"),
        ({"h": 10, "fragments": 2, "delay": 5}, "5 steps later; take less"),
        ({"h": 10, "delay": 2, "memory": "average"}, "nobody pauses to average"),
        ({"h": 10, "eager": True, "memory": "average"}, "needs diloco.eager = false"),
        ({"h": 10, "eager": True, "delay": 2}, "leave out the delay"),
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
