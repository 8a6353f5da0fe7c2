"""The driver itself, with schemes made up to try every effect."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from benchmarks.sim_scale import calls_per_event
from paceline.core.collective.mean_server import Averaged
from paceline.core.effects import COORDINATOR, SERVERS, Call, Compute, Effect, Mean, Reply, Start, Tell, Train, Wait
from paceline.core.errors import ConfigError, PeerLost, ProtocolError
from paceline.core.message import message
from paceline.core.role import Role
from paceline.core.scheme import Scheme, make
from paceline.core.trace import MemberChange, Record, Span
from paceline.core.vector import Ghost, Vector
from paceline.sim import LocalSteps, Simulation


@message("test_driver.Ask")
class Ask:
    v: Vector


@message("test_driver.Note")
class Note:
    text: str


def scheme_of(worker: type[Role], server: type[Role] | None = None, coordinator: type[Role] | None = None) -> Scheme:
    @dataclass(frozen=True, kw_only=True)
    class MadeUp(Scheme):
        Worker = worker
        Server = server
        Coordinator = coordinator

    return MadeUp()


class Doubler(Role):
    def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
        yield Reply(src, Ask(v=message.v * 2.0))


class Idle(Role):
    pass


def simulate(scheme: Scheme, workers: int = 1, w0: Any = None, seconds: float = 1.0, **more: Any) -> Simulation:
    work = LocalSteps(lambda rank, rng: seconds)
    w0 = np.arange(6.0) if w0 is None else w0
    return Simulation(scheme, w0, work, workers=workers, **{"latency_s": 0.25, "bandwidth_gbps": 1e9, **more})


class Got(Role):
    """Keeps what it got in `self.got`."""

    def __init__(self, scheme: Any, place: Any) -> None:
        super().__init__(scheme, place)
        self.got: list[Any] = []


@pytest.mark.parametrize("servers", [1, 3])
def test_a_call_is_cut_for_the_shards_and_their_answers_are_joined(servers: int) -> None:
    class Caller(Got):
        def run(self) -> Generator[Effect, Any, None]:
            self.got.append((yield Call(SERVERS, Ask(v=self.w))))

    sim = simulate(scheme_of(Caller, Doubler), servers=servers).run()
    assert sim.worker(0).got[0].v.tolist() == [0, 2, 4, 6, 8, 10]
    assert sim.now == pytest.approx(0.5)


def test_steps_are_counted_when_they_are_done() -> None:
    class Trainer(Got):
        def run(self) -> Generator[Effect, Any, None]:
            self.got.append((yield Train(self.w, 3)))
            self.got.append((yield Compute(self.w)))

    sim = simulate(scheme_of(Trainer), servers=0)
    assert sim.run(until=2.9).steps == [0]
    assert sim.run().steps == [4]
    trained, computed = sim.worker(0).got
    assert (trained.samples, trained.seconds, computed.samples) == (3, 3.0, 1)
    assert trained.x == pytest.approx(np.arange(6.0) * 0.9**3)


def test_what_is_started_goes_on_in_the_background() -> None:
    class Overlapper(Got):
        def run(self) -> Generator[Effect, Any, None]:
            ticket = yield Start(Mean(self.w, self.workers, tag="t"))
            yield Compute(self.w)
            self.got.append((yield Wait(ticket)))
            early = yield Start(Call(SERVERS, Ask(v=self.w)))
            self.got.append((yield Wait(early)))
            self.got.append((yield Wait(early)))

    records: list[Record] = []
    sim = simulate(scheme_of(Overlapper, Doubler), workers=2, trace=records.append).run()
    mean, first, second = sim.worker(1).got
    assert isinstance(mean, Averaged)
    assert mean.weight == 2
    assert first is second
    assert sim.now == pytest.approx(1.5), "the mean's 0.5 s are hidden under the step's 1 s"
    assert [(s.activity, s.seconds) for s in records if isinstance(s, Span) and s.rank == 1] == [
        ("computing", 1.0),
        ("waiting", 0.0),
        ("communicating", pytest.approx(0.5)),
    ]


@pytest.mark.parametrize(("servers", "seconds"), [(0, 6 * 0.25), (2, 2 * 0.25)])
def test_a_mean_is_a_ring_without_servers_and_their_work_with_them(servers: int, seconds: float) -> None:
    class Meeter(Got):
        def run(self) -> Generator[Effect, Any, None]:
            self.got.append((yield Mean(self.w + float(self.me), self.workers, tag="t", weight=float(self.me))))

    sim = simulate(scheme_of(Meeter), workers=4, servers=servers).run()
    assert sim.now == pytest.approx(seconds)
    assert sim.worker(2).got[0].v == pytest.approx(np.arange(6.0) + 14 / 6)


def test_a_ring_costs_what_its_members_cost_and_not_the_whole_cluster() -> None:
    class Pairs(Role):
        def run(self) -> Generator[Effect, Any, None]:
            pair = self.me // 2 * 2
            yield Mean(self.w, (pair, pair + 1), tag="t")

    assert simulate(scheme_of(Pairs), workers=8, servers=0).run().now == pytest.approx(2 * 0.25)


def test_workers_and_the_coordinator_can_be_told_and_asked() -> None:
    class Boss(Got):
        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            self.got.append((now, src))
            yield Tell((src + 1) % 2, Note(text="hello"))
            yield Reply(src, Note(text="yes"))

    class Peer(Got):
        def run(self) -> Generator[Effect, Any, None]:
            if self.me == 0:
                self.got.append((yield Call(COORDINATOR, Note(text="?"))).text)
                self.got.append((yield Call(1, Ask(v=self.w))).v[1])
                assert (yield Tell(1, Note(text="bye"))) is None

        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            if isinstance(message, Ask):
                yield Reply(src, Ask(v=message.v + 10.0))
            else:
                self.got.append(message.text)

    sim = simulate(scheme_of(Peer, coordinator=Boss), workers=2, servers=0).run()
    assert sim.worker(0).got == ["yes", 11.0]
    assert sim.worker(1).got == ["hello", "bye"]
    assert sim.coordinator is not None
    assert sim.coordinator.got == [(0.25, 0)]


def test_whoever_asks_a_worker_that_has_left_is_told() -> None:
    class Peer(Got):
        def run(self) -> Generator[Effect, Any, None]:
            if self.me == 1:
                yield Compute(self.w)
                yield Compute(self.w)
            try:
                yield Call(1, Ask(v=self.w))  # parked by worker 1 until it leaves
            except PeerLost as lost:
                self.got.append(str(lost))
            try:
                yield Call(1, Ask(v=self.w))
            except PeerLost as lost:
                self.got.append(str(lost))

        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            yield from ()

        def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
            self.got.append(rank)
            yield from ()

    records: list[Record] = []
    sim = simulate(scheme_of(Peer), workers=2, servers=0, trace=records.append)
    sim.run(until=0.5).leave(1)
    sim.run()
    lost = "worker 1 left before it answered worker 0"
    assert sim.worker(0).got == [lost, 1, lost]
    assert sim.steps == [0, 1]
    assert [r for r in records if isinstance(r, MemberChange)] == [
        MemberChange(at=1.0, party="worker 1", event="left", reason="asked to")
    ]


def test_an_answer_that_nobody_asked_for_is_an_error() -> None:
    class Twice(Role):
        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            yield Reply(src, message)
            yield Reply(src, message)

    class Caller(Role):
        def run(self) -> Generator[Effect, Any, None]:
            yield Call(SERVERS, Note(text="?"))

    with pytest.raises(ProtocolError, match="server 0 answers worker 0, which has asked nothing"):
        simulate(scheme_of(Caller, Twice)).run()


def test_after_a_restart_answers_to_the_earlier_life_are_lost_and_later_ones_arrive() -> None:
    class Patient(Role):
        """Answers every second question."""

        asked = 0

        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            self.asked += 1
            if self.asked == 2:
                yield Reply(src, Note(text="at last"))

    class Caller(Got):
        def run(self) -> Generator[Effect, Any, None]:
            self.got.append((yield Call(SERVERS, Note(text="?"))).text)

    sim = simulate(scheme_of(Caller, Patient), watched=False).run(until=0.3)
    sim.restart(0)
    assert sim.run().worker(0).got == ["at last"]


def test_a_scheme_that_cannot_run_here_is_refused_before_anything_happens() -> None:
    with pytest.raises(ConfigError, match="give --servers 1 or more"):
        simulate(make("asp", {}), servers=0)
    with pytest.raises(ValueError, match="7 servers cannot share 6 parameters: give --servers 6 or less"):
        simulate(make("asp", {}), servers=7)


def test_a_run_may_be_watched_and_continued() -> None:
    sim = simulate(make("asp", {}), workers=2, w0=Ghost(10))
    sim.run(max_events=10)
    assert sim.events == 10
    sim.run(stop=lambda sim: sim.steps[0] >= 5)
    assert sim.steps[0] == 5
    before = sim.now
    assert sim.run(until=before + 10).now <= before + 10
    assert sim.model().nbytes == 40


@pytest.mark.parametrize("name", ["bsp", "asp", "ssp", "gsp", "esync", "diloco"])
def test_what_an_event_costs_does_not_grow_with_the_workers(name: str) -> None:
    """Counted in calls of functions, which do not depend on how busy the machine is."""
    assert calls(name, 1024) < 1.1 * calls(name, 32)


def calls(name: str, workers: int) -> float:
    work = LocalSteps(lambda rank, rng: rng.uniform(1, 4))
    sim = Simulation(make(name, {}), Ghost(100), work, workers=workers, watched=False)
    sim.run(max_events=2 * workers)
    return calls_per_event(sim, 6 * workers)


def test_a_hundred_thousand_events_take_seconds_with_a_thousand_workers() -> None:
    """A coarse guard: it is well over 100,000 events a second on a quiet machine."""
    work = LocalSteps(lambda rank, rng: rng.uniform(1, 4))
    sim = Simulation(make("bsp", {}), Ghost(10**9), work, workers=1000, watched=False)
    begin = time.process_time()
    sim.run(max_events=50_000)
    assert time.process_time() - begin < 5
