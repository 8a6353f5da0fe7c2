"""Mass of gossip that appears or vanishes is found."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.core.effects import Compute, Effect
from paceline.core.local.push_sum import Holder, Share
from paceline.core.scheme import make
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps, Simulation
from paceline.sim.checking.invariants import InvariantBroken
from paceline.sim.checking.oracles.mass import Mass
from tests.sim.checking.watched import run
from tests.sim.made_up import scheme_of


def test_mass_that_comes_from_nowhere_or_goes_there_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = make("gosgd", {})
    run(scheme, servers=0, until=3000)
    put = Holder._put
    for factor in (0.5, 2.0):
        monkeypatch.setattr(Holder, "_put", lambda self, w, weight, round, f=factor: put(self, w, weight * f, round))
        with pytest.raises(
            InvariantBroken, match=r"worker \d holds [\d.]+; by the shares it sent and got it has -?[\d.]+"
        ):
            run(scheme, servers=0, until=3000)


def test_a_share_under_way_counts() -> None:
    class Passer(Holder):
        def run(self) -> Generator[Effect, Any, None]:
            while True:
                yield from self.give(((self.me + 1) % 3,))
                yield Compute(self.w)
                self.absorb()

        def expects(self, src: int, round: int) -> bool:
            return True

    scheme = scheme_of(Passer)
    type(scheme).workers_differ = True
    work = LocalSteps(lambda rank, rng: 1.0)
    sim = Simulation(scheme, Ghost(10), work, workers=3, servers=0, latency_s=7.5).run(until=3000)
    assert any(isinstance(arg, Share) for event in sim.heap for arg in event[3])


def holder(rank: int, incarnation: int, mass: float) -> Any:
    name = f"worker {rank}"
    held = SimpleNamespace(
        name=name, process=(name, incarnation), me=rank, incarnation=incarnation, here=True, mass=mass
    )
    held.role = SimpleNamespace(model=lambda: (None, held.mass))
    return held


@pytest.mark.parametrize("in_time", [True, False])
def test_a_newcomer_may_make_a_mass_while_that_of_the_others_is_on_its_way_to_one_that_is_not_there(
    in_time: bool,
) -> None:
    leaver, first, second = holder(0, 0, 3.0), holder(1, 1, 0.0), holder(2, 1, 0.0)
    sim: Any = SimpleNamespace(world=SimpleNamespace(workers=[leaver, first]), liars=set())
    mass = Mass(sim, AssertionError)
    mass.watch(leaver)
    mass.watch(first)
    mass.said(leaver, second, Share(w=None, weight=3.0))
    leaver.mass, leaver.here = 0.0, False
    first.mass = 1.0 if in_time else 0.0
    sim.world.workers.append(second)
    mass.watch(second)
    first.mass = 1.0
    if in_time:
        mass.look()
        return
    with pytest.raises(AssertionError, match="worker 1 holds 1; by the shares it sent and got it has 0"):
        mass.look()
