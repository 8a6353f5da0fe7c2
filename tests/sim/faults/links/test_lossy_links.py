"""Which calls a simulated process has open, by the messages that it has sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paceline.sim.cluster.model import Hazards
from paceline.sim.faults.links.lossy_links import LossyLinks


def process(name: str, incarnation: int = 0) -> Any:
    kind, _, number = name.partition(" ")
    return SimpleNamespace(
        name=name, incarnation=incarnation, process=(name, incarnation), kind=kind, me=int(number), hears=True, nic=None
    )


class Call:
    """A call of one incarnation of worker 0; `answered` are the shards that have answered it."""

    def __init__(self, incarnation: Any) -> None:
        self.incarnation, self.answered, self.done = incarnation, set[int](), False

    def has_answer_of(self, shard: int) -> bool:
        return self.done or shard in self.answered


class Stage:
    """Worker 0 and one server, and a network on which nothing arrives."""

    def __init__(self) -> None:
        self.w0, self.s1, self.present, self.in_vain = process("worker 0"), process("server 1"), object(), list[Any]()
        sim: Any = SimpleNamespace(
            seed=0,
            now=0.0,
            cluster=SimpleNamespace(network=SimpleNamespace(latency_s=0.01)),
            network=SimpleNamespace(arrival=lambda now, src, dst, nbytes: now + 0.01),
            heap=SimpleNamespace(push=lambda at, act, *args: None),
            messaging=SimpleNamespace(asked="asked"),
            incarnations=[self.present],
            invariants=None,
        )
        vain = self.in_vain.append
        self.links = LossyLinks(sim, Hazards(), None, lambda party: None, lambda dst, act, args: vain(args))

    def asks(self, call: Call, message: str, to: Any = None, act: Any = "asked") -> None:
        to = to or self.s1
        self.links.send(self.w0, to, 0, act, (to, call, message))


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_calls_to_repeat_are_those_of_the_present_incarnation_that_the_shard_has_not_answered(stage: Stage) -> None:
    first, second, former = Call(stage.present), Call(stage.present), Call(object())
    for call, message in ((former, "before a restart"), (first, "push 1"), (second, "push 2")):
        stage.asks(call, message)
    stage.asks(Call(stage.present), "a Tell", act="heard")
    unanswered = stage.links.unanswered(stage.w0, stage.s1)
    assert unanswered == [(1, "asked", first, "push 1"), (1, "asked", second, "push 2")], "in their order"
    first.answered.add(0)
    assert len(stage.links.unanswered(stage.w0, stage.s1)) == 2, "another shard has answered its part"
    first.answered.add(1)
    assert stage.links.unanswered(stage.w0, stage.s1) == [(1, "asked", second, "push 2")]
    assert stage.links.unanswered(stage.w0, process("server 1", 1)) == [], "that one was asked nothing"


def test_a_call_that_is_over_is_open_no_more(stage: Stage) -> None:
    first, second = Call(stage.present), Call(object())
    for call in (first, second):
        stage.asks(call, "a question")
    assert stage.links.questions(stage.w0, stage.s1) == [first, second]
    first.done = True
    assert stage.links.questions(stage.w0, stage.s1) == [second]
    assert stage.links.questions(stage.s1, stage.w0) == []


def test_a_call_that_was_repeated_at_a_successor_is_open_there_and_not_at_the_lost_one(stage: Stage) -> None:
    call, successor = Call(stage.present), process("server 1", 1)
    stage.asks(call, "a push")
    ((_, _, repeated, message),) = stage.links.unanswered(stage.w0, stage.s1)
    stage.links.fence(stage.w0, stage.s1)
    stage.asks(repeated, message, to=successor)
    assert stage.links.unanswered(stage.w0, stage.s1) == []
    assert stage.links.unanswered(stage.w0, successor) == [(1, "asked", call, "a push")]


def test_nothing_is_sent_to_one_that_was_fenced_and_a_call_to_it_fails(stage: Stage) -> None:
    stage.links.fence(stage.w0, stage.s1)
    call = Call(stage.present)
    stage.asks(call, "a push")
    assert stage.in_vain == [(stage.s1, call, "a push")]
    assert stage.links.questions(stage.w0, stage.s1) == []
