"""The invariants find what they are there to find: schemes and carriers with one fault each."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pytest

from paceline.core.collective.mean_server import Averaged, MeanServer
from paceline.core.effects import SERVERS, Call, Compute, Effect, Mean, Reply, Start, Tell, Wait
from paceline.core.local.push_sum import Holder, Share
from paceline.core.paramserver.gated_server import ClockedServer, Pull, Push
from paceline.core.paramserver.gated_worker import ClockedWorker
from paceline.core.paramserver.robust_mean import KeptRound, RobustPolicy
from paceline.core.role import Role
from paceline.core.scheme import Scheme, make
from paceline.core.vector import Ghost
from paceline.sim import LocalSteps, Simulation
from paceline.sim.checking.invariants import InvariantBroken
from paceline.sim.messaging import Messaging
from tests.sim.robust_numbers import Numbers
from tests.sim.test_simulation import Idle, scheme_of


def run(scheme: Scheme, workers: int = 3, servers: int = 1, until: float = 200.0) -> Simulation:
    work = LocalSteps(lambda rank, rng: 1.0 + rank)
    return Simulation(scheme, np.zeros(4), work, workers=workers, servers=servers, seed=17).run(until=until)


def test_a_worker_that_is_let_go_too_far_ahead_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = make("ssp", {"staleness": 2})
    run(scheme)
    monkeypatch.setattr(scheme.Server, "may_go", lambda self, rank: self.clocks[rank] - self.clocks.low <= 3)
    with pytest.raises(InvariantBroken, match="worker 0 may go 3 clocks ahead of the slowest, bound 2"):
        run(scheme)


def test_the_report_names_the_seed_the_time_and_the_last_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = make("bsp", {})
    monkeypatch.setattr(scheme.Server, "partition", lambda self: [(rank,) for rank in self.workers])
    with pytest.raises(InvariantBroken, match=r"bsp, seed 17, at 1\.\d+ s: (.*\n)+ .* server 0 hears Push of 0"):
        run(scheme)


def test_a_contribution_that_is_applied_twice_is_found() -> None:
    class Twice(ClockedServer):
        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            yield from super().on(now, src, message)
            if hasattr(message, "clock") and message.clock == 5 and src == 1:
                self._apply(now, (src,), message.g, message.samples)

    with pytest.raises(InvariantBroken, match="shard 0 applied 6 contributions of worker 1, which has made 5"):
        run(scheme_of(ClockedWorker, Twice))


def test_a_robust_round_counts_as_many_samples_as_its_claims_without_the_outer_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 8, 7, 7 and 7 that is 28, and neither 27 nor 33."""
    rounds = RobustPolicy(rule="median").rounds(Numbers())

    def robust() -> Simulation:
        work = LocalSteps(lambda rank, rng: 1.0, samples=(8, 7, 7, 7).__getitem__)
        sim = Simulation(make("bsp", {}), np.zeros(4), work, workers=4, servers=2, rounds=rounds)
        return sim.run(until=20.0)

    assert robust().world.servers[0].role.samples_seen % 28 == 0
    for wrong in (27, 33):
        monkeypatch.setattr(KeptRound, "counted_samples", lambda self, wrong=wrong: wrong)
        with pytest.raises(InvariantBroken, match=f"counts {wrong} samples; its contributions have 29"):
            robust()


def test_a_push_that_reaches_some_shards_only_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    split = Messaging._split

    def half(self: Messaging, message: Any, parties: Any) -> list[Any]:
        parts = split(self, message, parties)
        return [parts[0], Pull()] if isinstance(message, Push) and message.clock == 7 else parts

    run(make("asp", {}), servers=2)
    monkeypatch.setattr(Messaging, "_split", half)
    simulation = run(make("asp", {}), servers=2, until=20.0)
    assert simulation.invariants is not None
    assert [simulation.invariants.torn(rank) for rank in range(3)] == [1, 1, 0], "worker 2 makes six steps in that time"
    with pytest.raises(
        InvariantBroken, match="some shards have heard 1 contributions more than others; incarnations lost: 0"
    ):
        simulation.invariants.all_is_accounted_for()


def test_samples_that_are_counted_twice_are_found() -> None:
    class Generous(ClockedServer):
        def _note_update(self, now: float, ranks: Any, staleness: int, weight: float, samples: int) -> None:
            super()._note_update(now, ranks, staleness, weight, samples + 1)

    with pytest.raises(InvariantBroken, match="shard 0 applied 2 samples; 1 have arrived"):
        run(scheme_of(ClockedWorker, Generous))


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

    scheme = scheme_of(Passer)
    type(scheme).workers_differ = True
    work = LocalSteps(lambda rank, rng: 1.0)
    sim = Simulation(scheme, Ghost(10), work, workers=3, servers=0, latency_s=7.5).run(until=3000)
    assert any(isinstance(arg, Share) for event in sim.heap for arg in event[3])


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

    with pytest.raises(InvariantBroken, match="1000 events without a step: worker"):
        run(scheme_of(Asker, Echo), until=1e6)


def test_unwatched_runs_are_the_same_runs() -> None:
    work = LocalSteps(lambda rank, rng: rng.uniform(1, 2))
    runs = [
        Simulation(make("ssp", {}), Ghost(10), work, workers=5, servers=2, watched=watched).run(until=100)
        for watched in (True, False)
    ]
    assert runs[0].steps == runs[1].steps
    assert runs[0].events == runs[1].events


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


def test_a_staleness_that_is_not_what_it_was_is_found() -> None:
    class Flattering(ClockedServer):
        def _note_update(self, now: float, ranks: Any, staleness: int, weight: float, samples: int) -> None:
            super()._note_update(now, ranks, max(0, staleness - 1), weight, samples)

    with pytest.raises(InvariantBroken, match="calls a contribution of worker 1 0 versions late; it is 1"):
        run(scheme_of(ClockedWorker, Flattering))


@pytest.mark.parametrize("scheme", ["bsp", "lbbsp", "ksync"])
def test_an_update_of_too_few_is_found(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(scheme, {"k": 3} if scheme == "ksync" else {})
    run(made)
    monkeypatch.setattr(made.Server, "enough", lambda self, group: group.count >= 2)
    with pytest.raises(InvariantBroken, match=r"an update (of 2 contributions; 3 were to make one|without worker 2)"):
        run(made)
