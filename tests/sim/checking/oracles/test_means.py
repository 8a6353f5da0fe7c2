"""Means that weigh more or less than their members brought are found."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pytest

from paceline.core.collective.mean_server import Averaged, MeanServer
from paceline.core.effects import Compute, Effect, Mean, Reply, Start, Wait
from paceline.core.paramserver.gradient_check import GradientCheckPolicy, SliceGradientCheck
from paceline.core.paramserver.peer_check import OwnPartCheck
from paceline.core.role import Role
from paceline.core.scheme import make
from paceline.sim import LocalSteps, Simulation
from paceline.sim.checking.invariants import InvariantBroken
from tests.sim.checking.watched import run
from tests.sim.made_up import scheme_of


def test_a_mean_that_weighs_more_than_its_members_brought_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Meeter(Role):
        def run(self) -> Generator[Effect, Any, None]:
            for t in range(3):
                yield Compute(self.w)
                yield Mean(self.w, self.workers, tag=f"{t}", weight=2.0)

    run(scheme_of(Meeter), servers=0)
    close = MeanServer._close

    def heavier(self: MeanServer, meeting: Any) -> Iterator[Reply]:
        for reply in close(self, meeting):
            yield Reply(reply.to, Averaged(v=reply.message.v, weight=reply.message.weight + 2))

    monkeypatch.setattr(MeanServer, "_close", heavier)
    with pytest.raises(InvariantBroken, match="a mean weighs 8; its members brought 6"):
        run(scheme_of(Meeter), servers=0)


@pytest.mark.parametrize("servers", [0, 2])
def test_a_part_that_is_not_finite_is_left_out_by_those_who_check_and_by_nobody_else(servers: int) -> None:
    means: list[Averaged] = []

    class Meeter(Role):
        def run(self) -> Generator[Effect, Any, None]:
            means.append((yield Mean(self.w * (np.nan if self.me == 1 else 1.0), self.workers, tag="m", weight=2.0)))

    work = LocalSteps(lambda rank, rng: 1.0)

    def check(shard: int) -> SliceGradientCheck | None:
        return GradientCheckPolicy().gate(lambda v, onto: float(np.linalg.norm(v)), 3, shard, None)

    Simulation(scheme_of(Meeter), np.ones(4), work, workers=3, servers=servers, gate=check).run(until=9)
    assert [(mean.weight, list(mean.v)) for mean in means] == [(4.0, [1.0] * 4)] * 3
    means.clear()
    Simulation(scheme_of(Meeter), np.ones(4), work, workers=3, servers=servers).run(until=9)
    assert [mean.weight for mean in means] == [6.0] * 3
    assert not any(np.isfinite(mean.v).any() for mean in means)


def test_a_carrier_that_leaves_out_a_finite_part_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Meeter(Role):
        def run(self) -> Generator[Effect, Any, None]:
            yield Mean(self.w, self.workers, tag="m", weight=2.0)

    monkeypatch.setattr(OwnPartCheck, "part", lambda self, now, rank, v, onto=None: "bad" if rank == 1 else None)
    work, check = LocalSteps(lambda rank, rng: 1.0), GradientCheckPolicy().gate(lambda v, onto: 1.0, 3, 0, None)
    with pytest.raises(InvariantBroken, match="a mean weighs 4; its members brought 6"):
        Simulation(scheme_of(Meeter), np.ones(4), work, workers=3, servers=0, gate=lambda shard: check).run(until=9)


@pytest.mark.parametrize("servers", [0, 1, 3])
def test_more_means_under_way_than_a_scheme_says_are_found(servers: int) -> None:
    """Two of them are answered, and the worker is restarted before the answers come: it asks for both again."""

    class Double(Role):
        def run(self) -> Generator[Effect, Any, None]:
            tickets = []
            for tag in ("one", "two"):
                tickets.append((yield Start(Mean(self.w, self.workers, tag=tag))))
            for ticket in tickets:
                self.w = self.w + (yield Wait(ticket)).v
            self.finished = True

    scheme = scheme_of(Double)
    with pytest.raises(InvariantBroken, match="worker 0 has 2 Means under way; means_at_once = 1"):
        run(scheme, servers=servers)
    type(scheme).means_at_once = 2
    work = LocalSteps(lambda rank, rng: 1.0)
    for killed_at in (0.05, 0.1, 0.15, 0.2, 0.25, 0.3):
        sim = Simulation(scheme, np.ones(4), work, workers=3, servers=servers, latency_s=0.1).run(until=killed_at)
        sim.restart(1)
        sim.run(until=100)
        assert all(sim.worker(rank).finished for rank in range(3))


def test_a_mean_that_weighs_less_than_its_members_brought_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = make("localsgd", {})
    run(scheme)
    close = MeanServer._close

    def lighter(self: MeanServer, meeting: Any) -> Iterator[Reply]:
        for reply in close(self, meeting):
            yield Reply(reply.to, Averaged(v=reply.message.v, weight=reply.message.weight - 1))

    monkeypatch.setattr(MeanServer, "_close", lighter)
    with pytest.raises(InvariantBroken, match=r"a mean weighs \d+; its members brought \d+"):
        run(scheme)
