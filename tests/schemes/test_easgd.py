from typing import Any

import numpy as np
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.errors import ConfigError
from paceline.core.local.elastic_averaging import Replica
from paceline.core.paramserver.gated_server import Pull
from paceline.core.scheme import make
from paceline.sim import LocalSteps, Simulation, plain_sgd
from tests.role_driver import ByHand

GOALS = np.array([1.0, 5.0, -3.0])


def server(workers: int = 2, **parameters: Any) -> ByHand:
    scheme = make("easgd", parameters)
    return ByHand(scheme.Server, scheme, workers)


def replica(x: float, clock: int) -> Replica:
    return Replica(x=np.array([x]), clock=clock, samples=1)


def test_the_answer_is_the_centre_as_it_was_and_then_it_moves() -> None:
    s = server(alpha=0.5, server_alpha=0.25)
    assert s.on(0, replica(4.0, 1))[0].w == [0.0]
    assert s.role.w == [1.0]
    assert s.on(1, replica(5.0, 1))[1].w == [1.0]
    assert s.role.w == [2.0]
    assert [(u.ranks, u.version, u.staleness, u.weight) for u in s.updates()] == [
        ((0,), 1, 0, 0.25),
        ((1,), 2, 1, 0.25),
    ]


def test_a_repeat_is_answered_and_moves_nothing() -> None:
    s = server(alpha=0.5)
    s.on(0, replica(4.0, 1))
    assert s.on(0, replica(8.0, 1))[0].w == [2.0]
    assert s.role.w == [2.0]
    assert s.pull(0)[0].w == [2.0]
    assert len(s.updates()) == 1


def test_who_has_left_is_neither_heard_nor_answered() -> None:
    s = server(alpha=0.5)
    s.gone(0)
    assert s.on(0, replica(4.0, 1)) == {}
    assert s.role.w == [0.0]
    with pytest.raises(TypeError, match="which it does not take"):
        s.on(1, "hello")
    assert s.on(1, Pull())[1].version == 0


def run(name: str, servers: int, rounds: int, **parameters: Any) -> Simulation:
    work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w - GOALS[rank], lr=0.1)
    sim = Simulation(
        make(name, parameters), np.zeros(1), work, workers=3, servers=servers, update_factory=plain_sgd(0.1)
    )
    return sim.run(stop=lambda sim: min(sim.worker(r).round for r in range(3)) == rounds)


@pytest.mark.parametrize("servers", [0, 1])
def test_synchronously_the_centre_feels_the_forces_of_all(servers: int) -> None:
    x, centre = np.zeros(3), 0.0
    for _ in range(6):
        x = GOALS + 0.9**2 * (x - GOALS)
        x, centre = x - 0.2 * (x - centre), centre + 0.1 * (x - centre).sum()
    sim = run("easgd", servers, 6, tau=2, alpha=0.2, server_alpha=0.1, synchronous=True)
    assert sim.model() == pytest.approx(centre)
    assert [sim.worker(r).x[0] for r in range(3)] == pytest.approx(x)


@pytest.mark.parametrize("name", ["easgd", "eamsgd"])
def test_between_equal_rates_the_forces_cancel(name: str) -> None:
    """Without gradients the sum of the centre and all replicas stays."""
    scheme = make(name, {"alpha": 0.3, "tau": 1})
    work = LocalSteps(lambda rank, rng: 1.0 + rank, lambda rank, w: w * 0.0)
    sim = Simulation(scheme, np.zeros(1), work, workers=3, servers=1)
    for rank in range(3):
        sim.worker(rank).x = np.array([GOALS[rank]])
    sim.run(until=20)
    for _ in range(100):  # to an instant at which no exchange is under way
        sim.run(max_events=sim.events + 1)
        if all(sim.worker(r).round == sim.server(0).clocks[r] for r in range(3)):
            break
    assert sim.server(0).version > 20
    assert sim.model() + sum(sim.worker(r).x for r in range(3)) == pytest.approx(GOALS.sum())


def test_momentum_is_nesterovs_at_the_worker() -> None:
    x, v, centre = np.zeros(3), np.zeros(3), 0.0
    for _ in range(4):
        for _ in range(2):
            v = 0.6 * v - 0.1 * (x + 0.6 * v - GOALS)
            x = x + v
        x, centre = x - 0.2 * (x - centre), centre + 0.2 * (x - centre).sum()
    sim = run("eamsgd", 0, 4, tau=2, delta=0.6, alpha=0.2, synchronous=True)
    assert [sim.worker(r).x[0] for r in range(3)] == pytest.approx(x)
    assert sim.model() == pytest.approx(centre)


def test_without_momentum_or_when_it_is_reset_at_every_step_it_is_easgd() -> None:
    plain = run("easgd", 1, 5, tau=1, synchronous=True).model()
    assert run("eamsgd", 1, 5, tau=1, delta=0.0, synchronous=True).model() == pytest.approx(plain)
    assert run("eamsgd", 1, 5, tau=1, memory="reset", synchronous=True).model() == pytest.approx(plain)
    assert run("eamsgd", 1, 5, tau=1, memory="keep", synchronous=True).model() != pytest.approx(plain)


def test_averaged_momentum_is_the_same_on_all_workers() -> None:
    sim = run("eamsgd", 1, 5, tau=2, memory="average", synchronous=True)
    assert len({float(sim.worker(r).start[0]) for r in range(3)}) == 1


@pytest.mark.parametrize(
    ("parameters", "servers", "reason"),
    [
        ({}, 0, "easgd keeps its centre on servers: give --servers 1 or more, or --easgd.synchronous true"),
        ({"memory": "average"}, 1, "asynchronous workers never meet, so there is nothing to average"),
        ({"synchronous": True, "alpha": 0.5}, 1, "take an alpha of at most 0.25"),
    ],
)
def test_what_cannot_work_is_refused_with_the_way_out(parameters: dict[str, Any], servers: int, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        make("easgd", parameters).check(4, servers)


def test_the_rates_are_those_of_the_paper_by_default() -> None:
    scheme: Any = make("easgd", {})
    assert scheme.moving_rate(4) == scheme.moving_rate(4, of_centre=True) == 0.9 / 4
