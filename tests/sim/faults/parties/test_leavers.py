"""A simulated worker that leaves says so when what it sent was taken, and what came back was handled."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from paceline.core.coordination.party import server, worker
from paceline.sim.faults.parties.leavers import LOOK_AGAIN_S, SimulatedLeavers


def process(who: Any) -> Any:
    return SimpleNamespace(name=str(who), process=(str(who), 0), who=who, kind=who.kind, hears=True)


W0, W1, S0 = process(worker(0)), process(worker(1)), process(server(0))


class Streams:
    """Channels on which a question is answered once its party is in `answered`."""

    posted: Any

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answered: set[str] = set()
        self.behind: list[str] = []  # kinds whose process has not taken all

    def asks_taken(self, src: Any, name: str) -> list[str]:
        self.asked.append(name)
        return [name]

    def is_answered(self, question: str) -> bool:
        return question in self.answered

    def settled(self, party: Any, kinds: Any) -> bool:
        return not set(self.behind) & set(kinds)

    def unheard(self, src: Any, dst: Any) -> list[Any]:
        return [("itself",)] if "itself" in self.behind else []


class Stage:
    """One worker of two that leaves; `look` is what happens LOOK_AGAIN_S later."""

    def __init__(self) -> None:
        self.now, self.later, self.left = 0.0, list[Any](), list[Any]()
        self.heap, self.world = self, SimpleNamespace(workers=[W0, W1])
        self.streams = Streams()
        sim: Any = self
        self.leavers = SimulatedLeavers(sim, self.streams, self.left.append)  # type: ignore[arg-type]

    def push(self, at: float, act: Any, *args: Any) -> None:
        self.later.append((at, act, args))

    def look(self) -> None:
        ((self.now, act, args),) = self.later
        self.later.clear()
        act(*args)


def test_it_asks_the_workers_and_whom_it_has_sent_something_until_all_have_answered() -> None:
    stage = Stage()
    stage.streams.posted(W0, S0)
    stage.streams.posted(S0, W1)  # what others send concerns nobody who leaves
    stage.leavers.await_taken(W0)
    assert stage.streams.asked == ["server 0", "worker 1"]
    stage.streams.answered.add("server 0")
    stage.look()
    assert (stage.now, stage.left) == (LOOK_AGAIN_S, [])
    stage.streams.answered.add("worker 1")
    stage.look()
    assert (stage.left, stage.later) == ([W0], [])
    assert stage.streams.asked == ["server 0", "worker 1"]


def test_whom_it_sends_something_meanwhile_is_asked_again() -> None:
    stage = Stage()
    stage.leavers.await_taken(W0)
    stage.streams.posted(W0, S0)
    stage.streams.answered.add("worker 1")
    stage.look()
    assert (stage.streams.asked, stage.left) == (["worker 1", "server 0"], [])
    stage.streams.answered.add("server 0")
    stage.look()
    assert stage.left == [W0]


def test_what_is_under_way_to_the_coordinator_and_to_itself_comes_first() -> None:
    stage = Stage()
    stage.streams.answered.add("worker 1")
    for behind in ("coordinator", "itself"):
        stage.streams.behind = [behind]
        stage.look() if stage.later else stage.leavers.await_taken(W0)
        assert stage.left == [], behind
    stage.streams.behind = []
    stage.look()
    assert stage.left == [W0]


def test_one_that_dies_while_it_waits_says_nothing() -> None:
    stage, dying = Stage(), process(worker(0))
    stage.leavers.await_taken(dying)
    dying.hears = False
    stage.streams.answered.add("worker 1")
    stage.look()
    assert (stage.left, stage.later) == ([], [])
