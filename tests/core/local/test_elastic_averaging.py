"""The centre and its replicas: answers, repeats, and forces that cancel."""

from typing import Any

import numpy as np
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.local.elastic_averaging import Replica
from paceline.core.paramserver.gated_server import Pull
from paceline.core.scheme import make
from paceline.sim import LocalSteps, Simulation
from tests.role_driver import ByHand
from tests.schemes.elastic import run

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
