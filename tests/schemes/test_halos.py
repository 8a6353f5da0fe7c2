"""HALoS: the update rule of the paper, and what a region does when its speaker is lost."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import pytest

from paceline.core.errors import ConfigError
from paceline.core.scheme import make
from paceline.core.trace import Applied, Record
from paceline.sim import LocalSteps, Simulation
from tests.conformance.test_sim import watch

GOALS = np.random.default_rng(2).normal(size=(6, 3))
SECONDS = (1.0, 1.37, 2.11, 1.19, 1.73, 0.83)
LR = 0.1


class DelayedNesterov:
    """DN of the box, for one vector."""

    def __init__(self, eta: float, beta: float, d: int) -> None:
        self.eta, self.beta, self.d = eta, beta, d
        self.m, self.sum, self.arrived = np.zeros(3), np.zeros(3), 0

    def __call__(self, w: Any, v: Any) -> Any:
        self.sum, self.arrived = self.sum + v, self.arrived + 1
        if self.arrived < self.d:
            return w - self.eta * v
        self.m = self.beta * self.m + self.sum / self.d
        self.sum, self.arrived = np.zeros(3), 0
        return w - self.eta * (self.d * self.beta * self.m + v)


class Region:
    def __init__(self, p: dict[str, Any]) -> None:
        self.theta = self.theta_m = np.zeros(3)
        self.dn = DelayedNesterov(p["local_lr"], p["local_momentum"], p["local_delay"])
        self.deltas = 0
        self.answer: Any = None


def in_numpy(groups: tuple[tuple[int, ...], ...], p: dict[str, Any], until: float) -> tuple[Any, int]:
    """theta_g after `until` seconds by the box, and the Deltas in it; messages take no time."""
    theta_g, dn_g = np.zeros(3), DelayedNesterov(p["global_lr"], p["global_momentum"], p["global_delay"])
    regions, sent = [Region(p) for _ in groups], 0
    events: list[tuple[float, int, int, Any]] = []
    for g, ranks in enumerate(groups):
        for rank in ranks:
            heapq.heappush(events, (p["h"] * SECONDS[rank], rank, g, np.zeros(3)))
    while events[0][0] < until:
        now, rank, g, start = heapq.heappop(events)
        region = regions[g]
        x = GOALS[rank] + (1 - LR) ** p["h"] * (start - GOALS[rank])
        region.theta, region.deltas = region.dn(region.theta, start - x), region.deltas + 1
        if rank == groups[g][0]:  # the speaker
            if region.answer is not None:
                region.theta = (1 - p["alpha"]) * region.theta + p["alpha"] * region.answer
                region.theta_m, region.deltas, region.answer = region.theta, 0, None
            elif region.deltas >= p["k"]:
                theta_g, sent = dn_g(theta_g, region.theta_m - region.theta), sent + 1
                region.answer = theta_g
        heapq.heappush(events, (now + p["h"] * SECONDS[rank], rank, g, region.theta))
    return theta_g, sent


def written(groups: tuple[tuple[int, ...], ...]) -> str:
    return ";".join(",".join(map(str, ranks)) for ranks in groups)


def run(p: dict[str, Any], groups: tuple[tuple[int, ...], ...], until: float, **more: Any) -> Simulation:
    work = LocalSteps(lambda rank, rng: SECONDS[rank], lambda rank, w: w - GOALS[rank], lr=LR)
    workers = sum(map(len, groups))
    scheme = make("halos", {**p, "groups": written(groups)})
    return Simulation(scheme, np.zeros(3), work, workers=workers, servers=2, **more).run(until=until)


BY_THE_CODE = {
    "h": 2,
    "k": 4,
    "alpha": 0.25,
    "local_lr": 0.2,
    "local_momentum": 0.9,
    "local_delay": 3,
    "global_lr": 0.15,
    "global_momentum": 0.5,
    "global_delay": 2,
}


@pytest.mark.parametrize("groups", [((0,),), ((0,), (1,)), ((0, 1, 2), (3, 4, 5)), ((0, 1, 2, 3), (4, 5))])
@pytest.mark.parametrize("change", [{}, {"alpha": 1.0, "k": 1}, {"local_delay": 1, "global_delay": 1, "h": 3}])
def test_every_update_is_that_of_the_box(groups: tuple[tuple[int, ...], ...], change: dict[str, Any]) -> None:
    p = {**BY_THE_CODE, **change}
    records: list[Record] = []
    sim = run(p, groups, 100.0, trace=records.append)
    theta_g, sent = in_numpy(groups, p, 100.0)
    assert sent > 2
    assert sum(isinstance(record, Applied) and record.shard == 0 for record in records) == sent
    assert sim.model() == pytest.approx(theta_g, rel=1e-9)


def test_an_update_of_the_global_server_is_of_the_samples_of_the_region() -> None:
    records: list[Record] = []
    run(BY_THE_CODE, ((0, 1, 2), (3, 4, 5)), 60.0, trace=records.append)
    applied = [record for record in records if isinstance(record, Applied) and record.shard == 0]
    assert {record.ranks for record in applied} == {(0, 1, 2), (3, 4, 5)}
    assert min(record.samples for record in applied) >= 4 * 2, "four deltas of two steps"


def test_no_member_waits_while_an_exchange_of_its_region_is_on_its_way() -> None:
    began: list[float] = []
    sim_of: list[Simulation] = []

    def see(rank: int, effect: Any) -> None:
        if type(effect).__name__ == "Train":
            began.append(sim_of[0].now)

    work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w - GOALS[rank], lr=LR)
    scheme = make("halos", {**BY_THE_CODE, "k": 1, "groups": "0,1;2,3"})
    sim = Simulation(scheme, np.zeros(3), work, workers=4, servers=1)
    sim_of.append(sim)
    watch(sim, 1, see)
    sim.run(until=40)
    assert np.diff(began) == pytest.approx([2.0] * (len(began) - 1), abs=0.01)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_region_goes_on_when_a_member_is_lost_even_if_it_is_the_speaker(lost: int) -> None:
    sim = run({**BY_THE_CODE, "k": 2}, ((0, 1, 2), (3, 4, 5)), 30.0)
    sim.crash(lost)
    sim.run(until=60)
    before = list(sim.steps)
    sim.run(until=120)
    others = [rank for rank in range(6) if rank != lost]
    assert all(sim.steps[rank] - before[rank] > 20 for rank in others)


@pytest.mark.parametrize(
    ("parameters", "servers", "words"),
    [
        ({"groups": "0,1;2"}, 1, r"halos.groups = '0,1;2' must name each of the workers 0..3 once"),
        ({"groups": "0,1;2,3", "labels": "a,a,b,b"}, 1, "both say who is in a group: leave one out"),
        ({}, 0, "halos keeps its model on servers: give --servers 1 or more"),
    ],
)
def test_what_fits_no_cluster_is_refused(parameters: dict[str, Any], servers: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make("halos", parameters).check(workers=4, servers=servers)
