"""A run that is stopped waits for what its workers have trained: a Stop ends no call, and none is lost."""

from __future__ import annotations

from typing import Any

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.coordination.lifecycle import StopRule
from paceline.core.scheme import make, names
from paceline.core.trace import MemberChange, Record, Span
from paceline.core.vector import Ghost
from paceline.sim import Cluster, LocalSteps, Simulation
from paceline.sim.checking.oracles.end_of_run import StopWish
from paceline.sim.cluster.model import Device, Hazards, Host, NetworkSpec

STEP_S = (1.0, 1.7, 2.3)
"""Seconds a step of each worker: they reach barriers at different times."""
HOSTS = (*(Host(name=f"w{rank}", devices=(Device(),)) for rank in range(3)), Host(name="server", servers=1))
UNCOUNTED = {"adpsgd", "gosgd", "noloco", "prague", "sgp", "hybrid"}
"""Schemes whose roles do not count the samples of all, or estimate them: workers meet in pairs, or in phases."""


class Run:
    """Three workers and a server, until somebody asks for the end at `asked_at_s`; `records`: all that is traced."""

    def __init__(self, scheme: str, asked_at_s: float, *, latency_s: float = 1e-4, **hazards: Any) -> None:
        self.records: list[Record] = []
        network = NetworkSpec(latency_s=latency_s)
        cluster = Cluster(hosts=HOSTS, network=network, hazards=Hazards(**hazards), suspect_after_s=10.0)
        self.sim = Simulation(
            make(scheme, {}),
            Ghost(12),
            LocalSteps(lambda rank, rng: STEP_S[rank]),
            cluster=cluster,
            wish=StopWish(StopRule(), asked_at_s=(asked_at_s,)),
            trace=self.records.append,
            seed=1,
        )

    @property
    def trained(self) -> int:
        return sum(r.samples for r in self.records if isinstance(r, Span) and r.activity == "computing")

    @property
    def in_the_model(self) -> int:
        """As the servers count, or the workers, where they carry the model themselves."""
        roles: list[Any] = [self.sim.server(0), *(incarnation.party.role for incarnation in self.sim.incarnations)]
        return max(getattr(role, "samples_seen", 0) for role in roles)

    @property
    def left(self) -> list[str]:
        return sorted(r.party for r in self.records if isinstance(r, MemberChange) and r.event == "left")


def test_a_worker_that_waits_when_it_is_stopped_gets_its_answer() -> None:
    """Workers 0 and 1 have made their ninth step, and wait at the barrier for worker 2, which is at its own."""
    run = Run("bsp", 20.3)
    sim, calls = run.sim, run.sim.members.calls
    sim.run(until=20.5)
    assert all(sim.members.ends.stopped(party) for party in sim.world.workers)
    waiting = [incarnation.awaited for incarnation in sim.incarnations]
    assert [calls.is_open(call) for call in waiting] == [True, True, False]
    assert (sim.steps, run.in_the_model, run.left) == ([9, 9, 8], 24, [])
    sim.run(until=100.0)
    assert [calls.is_open(call) for call in waiting] == [False] * 3
    assert (sim.steps, run.in_the_model) == ([9, 9, 9], 27)
    assert (run.left, sim.members.over) == (["worker 0", "worker 1", "worker 2"], True)


@pytest.mark.parametrize("hazards", [{}, {"lost": 0.2, "repeated": 0.2, "late": 0.2}], ids=["sound links", "bad links"])
@pytest.mark.parametrize("scheme", sorted(set(names()) - UNCOUNTED))
def test_what_was_trained_is_in_the_model_of_a_run_that_is_stopped(scheme: str, hazards: dict[str, Any]) -> None:
    for asked_at_s in (3.1, 13.5, 20.3, 31.9):
        run = Run(scheme, asked_at_s, **hazards)
        run.sim.run(until=400.0)
        assert run.sim.members.over
        assert run.left == ["worker 0", "worker 1", "worker 2"]
        assert run.in_the_model == run.trained > 0, f"stopped at {asked_at_s} s"


def test_a_stop_voids_no_question_of_a_worker_that_leaves_and_none_is_put_again() -> None:
    """Worker 0 asks the others whether they have what it sent. Each message takes 0.5 s, and so does the Stop."""
    run = Run("asp", 1.2, latency_s=0.5)
    sim, calls = run.sim, run.sim.members.calls
    leaver = sim.world.workers[0]
    sim.leave(0)
    sim.run(stop=lambda sim: not leaver.here)
    left_s = sim.now
    asked = calls.of(leaver).unanswered
    assert [question.to.name for question in asked] == ["server 0", "worker 1", "worker 2"]
    sim.run(stop=lambda sim: sim.members.ends.stopped(leaver))
    assert [a is b for a, b in zip(asked, calls.of(leaver).unanswered, strict=True)] == [True] * 3
    sim.run(stop=lambda sim: bool(run.left))
    assert (run.left, sim.now) == (["worker 0"], pytest.approx(left_s + 1.5)), "one round of questions, and Left"
    sim.run(until=100.0)
    assert (run.left, sim.members.over) == (["worker 0", "worker 1", "worker 2"], True)
