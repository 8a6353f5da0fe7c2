"""Calls, answers, tells and means between simulated parties."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.collective.mean_server import Averaged
from paceline.core.effects import COORDINATOR, SERVERS, Call, Compute, Effect, Mean, Reply, Start, Tell, Wait
from paceline.core.errors import PeerLost, ProtocolError
from paceline.core.message import message
from paceline.core.role import Role
from paceline.core.trace import MemberChange, Record, Span
from paceline.core.vector import Vector
from tests.sim.made_up import Got, Note, scheme_of, simulate


@message("test_driver.Ask")
class Ask:
    v: Vector


class Doubler(Role):
    def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
        yield Reply(src, Ask(v=message.v * 2.0))


@pytest.mark.parametrize("servers", [1, 3])
def test_a_call_is_cut_for_the_shards_and_their_answers_are_joined(servers: int) -> None:
    class Caller(Got):
        def run(self) -> Generator[Effect, Any, None]:
            self.got.append((yield Call(SERVERS, Ask(v=self.w))))

    sim = simulate(scheme_of(Caller, Doubler), servers=servers).run()
    assert sim.worker(0).got[0].v.tolist() == [0, 2, 4, 6, 8, 10]
    assert sim.now == pytest.approx(0.5)


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
