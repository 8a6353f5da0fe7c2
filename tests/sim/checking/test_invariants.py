"""The invariants find what they are there to find: schemes and carriers with one fault each."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from paceline.core.effects import SERVERS, Call, Compute, Effect, Reply, Tell
from paceline.core.local.push_sum import Share
from paceline.core.paramserver.gated_server import ClockedServer
from paceline.core.paramserver.gated_worker import ClockedWorker
from paceline.core.role import Role
from paceline.core.scheme import make
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps, Simulation
from paceline.sim.checking import invariants
from paceline.sim.checking.invariants import InvariantBroken
from paceline.sim.cluster.model import Fault, Hazards, uniform
from tests.sim.checking.watched import run
from tests.sim.made_up import scheme_of
from tests.sim.test_simulation import Idle


def test_the_report_names_the_seed_the_time_and_the_last_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = make("bsp", {})
    monkeypatch.setattr(scheme.Server, "partition", lambda self: [(rank,) for rank in self.workers])
    with pytest.raises(InvariantBroken, match=r"bsp, seed 17, at 1\.\d+ s: (.*\n)+ .* server 0 hears Push of 0"):
        run(scheme)


def test_when_nothing_is_left_to_happen_nobody_may_wait() -> None:
    class Caller(Role):
        def run(self) -> Generator[Effect, Any, None]:
            yield Compute(self.w)
            yield Call(SERVERS, Share(w=self.w, weight=1.0))

    class Silent(Idle):
        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            yield from ()

    with pytest.raises(InvariantBroken, match="nothing is left to happen, but worker 0 waits for server 0"):
        run(scheme_of(Caller, Silent))


def test_who_is_forgotten_while_the_others_go_on_is_found() -> None:
    class Forgetful(ClockedServer):
        def may_go(self, rank: int) -> bool:
            return rank != 1 or self.clocks[1] < 4

        def why_not(self, rank: int) -> str:
            return "it is Tuesday"

    with pytest.raises(InvariantBroken, match=r"worker 1 waits for server 0 \(it is Tuesday\) while another has made"):
        run(scheme_of(ClockedWorker, Forgetful), until=1e6)


def test_messages_that_go_round_without_a_step_are_found() -> None:
    class Asker(Role):
        def run(self) -> Generator[Effect, Any, None]:
            while True:
                yield Call(SERVERS, Share(w=self.w, weight=1.0))

    class Echo(Idle):
        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            yield Reply(src, message)

    with pytest.raises(InvariantBroken, match="10000 events without a step: worker"):
        run(scheme_of(Asker, Echo), until=1e6)


def test_unwatched_runs_are_the_same_runs() -> None:
    work = LocalSteps(lambda rank, rng: rng.uniform(1, 2))
    runs = [
        Simulation(make("ssp", {}), Ghost(10), work, workers=5, servers=2, watched=watched).run(until=100)
        for watched in (True, False)
    ]
    assert runs[0].steps == runs[1].steps
    assert runs[0].events == runs[1].events


def without_servers(seed: int) -> Simulation:
    """Returns a run of which both servers are lost for 9 s, while what is sent to them is sent again and again."""
    faults = (
        Fault(kind="crash", at_s=5.0, for_s=1.0, hosts=("servers-0",)),
        Fault(kind="disk-full", at_s=4.0, for_s=9.0, hosts=("servers-1",)),
    )
    hazards = Hazards(lost=0.2, repeated=0.2, late=0.2, late_s=0.01, servers_keep="replica")
    cluster = replace(uniform(2, 2), hazards=hazards, faults=faults, suspect_after_s=3.0)
    work = LocalSteps(lambda rank, rng: rng.uniform(0.5, 1.5))
    return Simulation(make("asp", {}), Ghost(12), work, cluster=cluster, seed=seed).run(until=40.0)


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_nobody_makes_steps_while_servers_are_replaced(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invariants, "EVENTS", 1)  # a look every 160 events
    assert min(without_servers(seed).steps) > 10
    monkeypatch.setattr(invariants, "LOOKS_WITHOUT_STEP", 1)  # else it would count as messages that go round
    monkeypatch.setattr(invariants.Invariants, "servers_are_back", lambda self, order, *, rolled_back: None)
    with pytest.raises(InvariantBroken, match="160 events without a step: worker"):
        without_servers(seed)
