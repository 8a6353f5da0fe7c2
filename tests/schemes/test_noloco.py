"""NoLoCo: pairs of workers drawn at random step together; nobody else waits for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import paceline
from paceline.core.effects import Call, Reply, Tell, Train, Trained
from paceline.core.errors import PeerLost
from paceline.core.local.answered_rounds import RoundSent
from paceline.core.local.topology import paired_with
from paceline.core.role import RoleContext
from paceline.core.scheme import make
from paceline.core.trace import Record, Span
from paceline.core.vector import Ghost
from paceline.schemes.noloco import PairPart
from paceline.sim import LocalSteps, Simulation
from tests.core.local.gossip import assert_that_kills_change_nothing_of_the_mean
from tests.runtime.own_loops import plain_steps, toy_data, toy_model

GOALS = np.array([[1.0, 0.0], [5.0, 2.0], [-2.0, 4.0], [0.0, 3.0], [2.0, 2.0]])


def simulation(workers: int, *, seed: int = 0, uneven: bool = False, **parameters: Any) -> Simulation:
    work = LocalSteps(
        lambda rank, rng: rng.uniform(0.5, 1.5) if uneven else 1.0, lambda rank, w: w - GOALS[rank], lr=0.1
    )
    return Simulation(make("noloco", parameters), np.zeros(2), work, workers=workers, servers=0, seed=seed)


def in_numpy(workers: int, rounds: int, h: int, alpha: float, beta: float, gamma: float) -> Any:
    """phi of each worker after so many outer steps, by the box."""
    phi, delta = np.zeros((workers, 2)), np.zeros((workers, 2))
    goals = GOALS[:workers]
    for k in range(rounds):
        theta = goals + 0.9**h * (phi - goals)
        partners = [paired_with(i, k, workers, 0) for i in range(workers)]
        both = [(i,) if j is None else (i, j) for i, j in enumerate(partners)]
        mean_phi = np.array([phi[list(pair)].mean(axis=0) for pair in both])
        mean_move = np.array([(theta - phi)[list(pair)].mean(axis=0) for pair in both])
        delta = alpha * delta + beta * mean_move + gamma * (mean_phi - phi)
        phi = phi + delta
    return phi


@pytest.mark.parametrize("workers", [1, 2, 4, 5])
@pytest.mark.parametrize("uneven", [False, True])
def test_every_outer_step_is_that_of_the_box(workers: int, uneven: bool) -> None:
    sim = simulation(workers, uneven=uneven, h=3, alpha=0.4, beta=0.6, gamma=0.8)
    phis: dict[int, Any] = {}

    def after_seven(sim: Simulation) -> bool:
        for rank in range(workers):
            if sim.worker(rank).k == 7:
                phis.setdefault(rank, sim.worker(rank).w.copy())
        return len(phis) == workers

    sim.run(stop=after_seven)
    expected = in_numpy(workers, 7, 3, 0.4, 0.6, 0.8)
    assert [list(phis[rank]) for rank in range(workers)] == [pytest.approx(list(phi)) for phi in expected]


@pytest.mark.parametrize("seed", range(4))
def test_kills_change_nothing_of_the_mean(seed: int) -> None:
    assert_that_kills_change_nothing_of_the_mean("noloco", seed, h=2)


def worker(**parameters: Any) -> Any:
    scheme = make("noloco", {"h": 2, **parameters})
    context = RoleContext(me=0, workers=(0, 1), w=np.zeros(2), update=lambda w, g, samples: w)
    return scheme.Worker(scheme, context)


def trained(role: Any, theta: list[float]) -> tuple[Any, Any]:
    """Its loop after the first local steps, and the part that it tells its partner."""
    loop = role.run()
    assert isinstance(next(loop), Train)
    told = loop.send(Trained(np.array(theta), 4, 1.0))
    assert isinstance(told, Tell)
    return loop, told.message


def test_whoever_asks_is_answered_when_the_part_is_sent_and_not_before() -> None:
    role = worker()
    assert list(role.on(0.0, 1, RoundSent(round=0))) == []
    loop, _ = trained(role, [1.0, 1.0])
    assert loop.send(None) == Reply(1, RoundSent(round=0))


def test_whoever_asks_for_a_step_in_which_they_are_no_pair_is_answered_at_once() -> None:
    scheme = make("noloco", {})
    role = scheme.Worker(scheme, RoleContext(me=0, workers=(0, 1, 2, 3), w=np.zeros(2), update=lambda w, g, n: w))
    k = next(k for k in range(50) if paired_with(0, k, 4, 0) != 3)
    assert list(role.on(0.0, 3, RoundSent(round=k))) == [Reply(3, RoundSent(round=k))]


def test_a_partner_that_is_lost_leaves_a_step_alone() -> None:
    role = worker(alpha=0.0, beta=1.0)
    loop, _ = trained(role, [1.0, 2.0])
    assert isinstance(loop.send(None), Call)
    assert isinstance(loop.throw(PeerLost("gone")), Train)
    assert role.w.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("bad", [{"phi": np.array([np.nan, 0.0])}, {"theta": np.array([0.0, np.inf])}, {"counts": 0.0}])
def test_a_part_that_is_of_no_use_is_left_out(bad: dict[str, Any]) -> None:
    role = worker(alpha=0.0, beta=1.0)
    part = {"phi": np.ones(2), "theta": np.ones(2), "counts": 1.0, "round": 0}
    list(role.on(0.0, 1, PairPart(**{**part, **bad})))
    loop, _ = trained(role, [1.0, 2.0])
    loop.send(None)
    loop.send(RoundSent(round=0))
    assert role.w.tolist() == [1.0, 2.0]


def test_a_worker_whose_theta_is_not_finite_stands_still() -> None:
    role = worker(alpha=0.0, beta=1.0, gamma=1.0)
    list(role.on(0.0, 1, PairPart(phi=np.ones(2), theta=np.full(2, 3.0), counts=1.0, round=0)))
    loop, told = trained(role, [np.nan, 0.0])
    assert told.theta.tolist() == [0.0, 0.0]
    loop.send(None)
    loop.send(RoundSent(round=0))
    assert role.w.tolist() == [1.5, 1.5], "half of the partner's step, and half of the way to it"


def test_it_takes_a_restart_between_telling_and_hearing() -> None:
    role = worker()
    _, first = trained(role, [1.0, 2.0])
    again = next(role.run())
    assert isinstance(again, Tell)
    assert again.message is first, "the very same part, and no local steps anew"


def test_alone_without_momentum_it_is_the_plain_loop() -> None:
    model, other = toy_model(), toy_model()
    numbers = {"h": 8, "alpha": 0.0, "beta": 1.0}
    with paceline.join(model, torch.optim.SGD(model.parameters(), 0.1), scheme="noloco", **numbers) as pace:
        plain_steps(pace, model, toy_data())
    optimizer = torch.optim.SGD(other.parameters(), 0.1)
    with paceline.join(other, optimizer, scheme="localsgd", tau=8) as pace:
        plain_steps(pace, other, toy_data())
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        assert isinstance(p, nn.Parameter)
        torch.testing.assert_close(p, q)


def waiting(scheme: str, **parameters: Any) -> float:
    """The share of time that 16 workers wait or communicate, whose steps take 0.2 to 2 s."""
    records: list[Record] = []
    work = LocalSteps(lambda rank, rng: rng.choice((0.2, 0.4, 2.0)))
    sim = Simulation(make(scheme, parameters), Ghost(1000), work, workers=16, servers=0, trace=records.append)
    sim.run(until=400)
    spans = [record for record in records if isinstance(record, Span)]
    return sum(s.seconds for s in spans if s.activity != "computing") / sum(s.seconds for s in spans)


def test_two_wait_for_each_other_and_not_for_all() -> None:
    assert waiting("noloco", h=4) < 0.8 * waiting("diloco", h=4)


def test_a_part_of_anybody_but_the_partner_is_not_taken_for_the_partners() -> None:
    place = RoleContext(me=0, workers=(0, 1, 2, 3), w=np.zeros(2), update=lambda w, g, samples: w)
    role = make("noloco", {}).worker(0)(make("noloco", {}), place)
    partner = paired_with(0, 0, 4, 0)
    assert partner is not None
    liar = next(rank for rank in (1, 2, 3) if rank != partner)
    part = PairPart(phi=np.ones(2), theta=np.ones(2), counts=1.0, round=0)
    list(role.on(0.0, liar, part))
    assert role.theirs() is None
    list(role.on(0.0, liar, part))
    list(role.on(0.0, partner, part))
    assert role.theirs() is part
