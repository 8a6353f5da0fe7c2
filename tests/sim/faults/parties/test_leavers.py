"""A simulated worker that leaves says so when what it sent was taken, and what came back was handled."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paceline.core.coordination.party import Party, server, worker
from paceline.sim.faults.parties.leavers import SimulatedLeavers
from paceline.sim.faults.parties.open_calls import SimulatedCalls


def process(who: Party) -> Any:
    return SimpleNamespace(name=str(who), process=(str(who), 0), who=who, kind=who.kind, me=who.index, hears=True)


class Streams:
    """Connections on which a message waits until it is passed on."""

    posted: Any

    def __init__(self) -> None:
        self.under_way: list[tuple[Any, Any, tuple[Any, ...]]] = []
        self.lost: set[str] = set()
        self.behind: list[str] = []  # kinds whose process has not taken all
        self.server_views: dict[Any, int] = {}

    def send(self, src: Any, dst: Any, nbytes: int, act: Any, args: Any, *, past_role: bool) -> None:
        assert past_role, "no role hears it"
        self.under_way.append((dst, act, args))

    def has_lost(self, src: Any, dst: Any) -> bool:
        return dst.name in self.lost

    def settled(self, party: Any, kinds: Any) -> bool:
        return not set(self.behind) & set(kinds)

    def unheard(self, src: Any, dst: Any) -> list[Any]:
        return [("itself",)] if "itself" in self.behind else []


class Stage:
    """One worker of two that leaves, with two servers; `look` is what happens LOOK_AGAIN_S later."""

    def __init__(self) -> None:
        self.now, self.later, self.left = 0.0, list[Any](), list[Any]()
        self.w0, self.w1 = process(worker(0)), process(worker(1))
        servers = [process(server(shard)) for shard in range(2)]
        self.heap, self.world = self, SimpleNamespace(workers=[self.w0, self.w1], servers=servers)
        self.streams = Streams()
        sim: Any = self
        self.members = SimpleNamespace(servers=object())
        self.invariants: Any = None
        self.held: dict[str, list[Any]] = {}  # by server whose copy lacks something: what waits for that
        self.connected: dict[str, Any] = {}
        self.calls = SimulatedCalls(sim, lambda src, to: self.connected.get(to.name, to))
        self.leavers = SimulatedLeavers(sim, sim, self.streams, self.calls, self.left.append)  # type: ignore[arg-type]

    def worker_of(self, src: Any, rank: int) -> Any:
        return self.world.workers[rank]

    def after_replicated(self, party: Any, act: Any) -> None:
        if party.name in self.held:
            self.held[party.name].append(act)
        else:
            act()

    def push(self, at: float, act: Any, *args: Any) -> None:
        self.later.append((at, act, args))

    def look(self) -> None:
        ((self.now, act, args),) = self.later
        self.later.clear()
        act(*args)

    @property
    def asked(self) -> list[str]:
        """Whom messages that are under way go to."""
        return [dst.name for dst, _, _ in self.streams.under_way]

    def arrives(self, *names: str) -> None:
        """What is under way to these parties arrives."""
        for message in list(self.streams.under_way):
            dst, act, args = message
            if dst.name in names:
                self.streams.under_way.remove(message)
                act(*args)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_it_asks_the_workers_and_whom_it_has_sent_something_until_all_have_answered(stage: Stage) -> None:
    stage.streams.posted(stage.w0, stage.world.servers[0])
    stage.streams.posted(stage.world.servers[0], stage.w1)  # what others send concerns nobody who leaves
    stage.leavers.await_taken(stage.w0)
    assert stage.asked == ["server 0", "worker 1"]
    stage.arrives("server 0", "worker 1")
    assert stage.asked == ["worker 0", "worker 0"]
    assert stage.left == []
    stage.arrives("worker 0")
    assert stage.left == [stage.w0]
    stage.look()
    assert (stage.later, stage.asked, stage.left) == ([], [], [stage.w0])


def test_a_worker_that_is_drained_asks_the_servers_as_well(stage: Stage) -> None:
    stage.leavers.await_taken(stage.w0, [server(0), server(1)])
    assert stage.asked == ["server 0", "server 1", "worker 1"]


def test_a_server_answers_once_its_copy_has_what_it_has_taken(stage: Stage) -> None:
    answered: list[Any] = []
    stage.invariants = SimpleNamespace(answered=lambda party, rank: answered.append((party.name, rank)))
    stage.held["server 0"] = []
    stage.leavers.await_taken(stage.w0, [server(0)])
    stage.arrives("server 0", "worker 1")
    stage.arrives("worker 0")
    assert (stage.left, answered) == ([], [])
    (act,) = stage.held["server 0"]
    act()
    assert answered == [("server 0", 0)], "its successor must have it"
    stage.arrives("worker 0")
    assert stage.left == [stage.w0]


def test_one_that_may_exit_asks_all_once_more_and_then_its_process_ends(stage: Stage) -> None:
    stage.leavers.await_taken(stage.w0)
    stage.arrives("worker 1")
    stage.arrives("worker 0")
    ended: list[Any] = []
    stage.leavers.await_taken(stage.w0, then=ended.append)
    assert stage.asked == ["worker 1"]
    stage.streams.posted(stage.w0, stage.w1)  # its role sends a late share back
    stage.arrives("worker 1")
    stage.arrives("worker 0")
    assert (stage.asked, ended) == (["worker 1"], [])
    stage.arrives("worker 1")
    stage.arrives("worker 0")
    assert (ended, stage.left) == ([stage.w0], [stage.w0]), "it has left once, and ended once"


def test_whom_it_sends_something_meanwhile_is_asked_again(stage: Stage) -> None:
    stage.leavers.await_taken(stage.w0)
    stage.arrives("worker 1")
    stage.streams.posted(stage.w0, stage.world.servers[0])
    stage.arrives("worker 0")
    assert (stage.asked, stage.left) == (["server 0"], [])
    stage.arrives("server 0")
    stage.arrives("worker 0")
    assert stage.left == [stage.w0]


def test_what_is_under_way_to_the_coordinator_and_to_itself_comes_first(stage: Stage) -> None:
    stage.streams.behind = ["coordinator"]
    stage.leavers.await_taken(stage.w0)
    stage.arrives("worker 1")
    stage.arrives("worker 0")
    assert stage.left == []
    stage.streams.behind = ["itself"]
    stage.look()
    assert stage.left == []
    stage.streams.behind = []
    stage.look()
    assert stage.left == [stage.w0]


def test_one_whose_connection_is_gone_has_nothing_to_take(stage: Stage) -> None:
    stage.leavers.await_taken(stage.w0)
    stage.look()
    assert stage.left == []
    stage.streams.lost.add("worker 1")
    stage.look()
    assert stage.left == [stage.w0]
    stage.arrives("worker 1")
    stage.arrives("worker 0")
    assert stage.left == [stage.w0], "a late answer changes nothing"


def test_a_server_that_is_lost_is_asked_again_when_it_is_replaced(stage: Stage) -> None:
    stage.leavers.await_taken(stage.w0, [server(0), server(1)])
    stage.arrives("worker 1", "server 1")
    stage.arrives("worker 0")
    stage.streams.lost.add("server 0")
    stage.streams.under_way.clear()
    stage.look()
    assert (stage.asked, stage.left) == ([], [])
    stage.world.servers[0] = process(server(0))
    stage.calls.sends_again(stage.w0, [server(0)])
    stage.calls.sends_again(stage.w0, [server(0)])
    assert stage.asked == ["server 0", "server 0"], "it was replaced twice"
    stage.arrives("server 0")
    stage.arrives("worker 0")
    assert stage.left == [stage.w0]


def test_a_server_that_is_away_is_asked_behind_the_calls_that_are_sent_again(stage: Stage) -> None:
    former, stage.world.servers[0] = stage.world.servers[0], process(server(0))
    stage.calls.lost(stage.w0, former)
    stage.leavers.await_taken(stage.w0, [server(0)])
    assert stage.asked == ["worker 1"]
    stage.calls.sends_again(stage.w0, [server(0)])
    assert [dst for dst, _, _ in stage.streams.under_way if dst.kind == "server"] == [stage.world.servers[0]]


def test_a_lost_server_is_asked_where_its_successor_has_not_called(stage: Stage) -> None:
    former, stage.world.servers[0] = stage.world.servers[0], process(server(0))
    stage.connected["server 0"] = former
    stage.leavers.await_taken(stage.w0, [server(0)])
    assert [dst for dst, _, _ in stage.streams.under_way if dst.kind == "server"] == [former]


def test_calls_of_its_role_that_nobody_answers_do_not_keep_it(stage: Stage) -> None:
    call: Any = SimpleNamespace(incarnation=SimpleNamespace(party=stage.w0), numbers=None)
    stage.calls.opens(stage.w0, stage.world.servers[0], call, "a push")
    stage.streams.behind = ["coordinator"]
    stage.leavers.await_taken(stage.w0)
    stage.arrives("worker 1")
    stage.arrives("worker 0")
    stage.streams.behind = []
    stage.look()
    assert stage.left == [stage.w0]


def test_where_servers_went_back_what_they_were_sent_is_void(stage: Stage) -> None:
    stage.leavers.await_taken(stage.w0, [server(0), server(1)])
    stage.arrives("worker 1")
    stage.arrives("worker 0")
    assert stage.left == []
    stage.calls.servers_went_back(stage.w0, 1)
    assert stage.left == [stage.w0]


def test_one_that_dies_while_it_waits_says_nothing(stage: Stage) -> None:
    stage.leavers.await_taken(stage.w0)
    stage.w0.hears = False
    stage.look()
    assert (stage.left, stage.later) == ([], [])
