"""Which messages of a simulated process open calls, and whom they reach."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paceline.core.message import message
from paceline.sim.cluster.model import Hazards
from paceline.sim.faults.links.lossy_links import LossyLinks


def process(name: str, incarnation: int = 0) -> Any:
    kind, _, number = name.partition(" ")
    return SimpleNamespace(
        name=name,
        incarnation=incarnation,
        process=(name, incarnation),
        kind=kind,
        me=int(number),
        hears=True,
        nic=None,
        sent=0,
        received=0,
    )


@message("tests.Posted")
class Said:
    """A message without vectors."""


class Stage:
    """Worker 0 and one server, and a network on which nothing arrives."""

    def __init__(self) -> None:
        self.w0, self.s1, self.in_vain = process("worker 0"), process("server 1"), list[Any]()
        self.former: Any = None  # the process that worker 0 is connected to, if that is not `s1`
        self.calls: list[Any] = []
        self.stopped = False
        sim: Any = SimpleNamespace(
            seed=0,
            now=0.0,
            cluster=SimpleNamespace(network=SimpleNamespace(latency_s=0.01)),
            network=SimpleNamespace(arrival=lambda now, src, dst, nbytes: now + 0.01),
            heap=SimpleNamespace(push=lambda at, act, *args: None),
            messaging=SimpleNamespace(asked="asked"),
            invariants=None,
        )
        calls: Any = SimpleNamespace(
            connection=lambda src, to: self.former or to,
            opens=self._opens,
            is_sent=lambda call, dst, number: self.calls.append(("sent", dst, number)),
            worker_ended=lambda party, gone: self.calls.append(("ended", party, gone)),
        )
        vain = self.in_vain.append
        self.links = LossyLinks(sim, Hazards(), None, calls, lambda party: None, lambda dst, act, args: vain(args))

    def _opens(self, src: Any, dst: Any, call: Any, message: Any) -> bool:
        self.calls.append(("opened", dst, message))
        return not self.stopped

    def asks(self, call: str, message: str, act: str = "asked") -> None:
        self.links.send(self.w0, self.s1, 0, act, (self.s1, call, message))  # type: ignore[arg-type]

    def posts(self, message: str) -> None:
        self.links.post(self.w0, self.s1, Said(), "asked", (self.s1, "a call", message))  # type: ignore[arg-type]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_role_s_call_is_opened_before_it_is_sent_and_a_repetition_is_not_opened_again(stage: Stage) -> None:
    stage.posts("push 1")
    assert stage.calls == [("opened", stage.s1, "push 1"), ("sent", stage.s1, 1)]
    stage.calls.clear()
    stage.asks("a call", "push 1")
    stage.asks("a Tell", "news", act="heard")
    assert stage.calls == [("sent", stage.s1, 2)]


def test_a_call_that_fails_at_once_is_not_sent(stage: Stage) -> None:
    stage.stopped = True
    stage.posts("push 1")
    assert stage.calls == [("opened", stage.s1, "push 1")]


def test_what_a_role_sends_reaches_the_process_that_its_own_is_connected_to(stage: Stage) -> None:
    stage.former = process("server 1")
    stage.s1.incarnation = 1
    stage.posts("push 1")
    assert stage.calls == [("opened", stage.former, "push 1"), ("sent", stage.former, 1)]


def test_nothing_is_sent_to_one_that_was_fenced_and_a_call_to_it_fails(stage: Stage) -> None:
    stage.links.fence(stage.w0, stage.s1)
    stage.asks("a call", "a push")
    assert stage.in_vain == [(stage.s1, "a call", "a push")]
    assert stage.calls == []


def test_calls_to_a_worker_that_died_as_it_left_fail_and_so_do_later_ones(stage: Stage) -> None:
    stage.s1 = dead = process("worker 1")
    stage.asks("a call", "push 1")
    stage.calls.clear()
    stage.links.died(dead)
    assert stage.calls == [("ended", stage.w0, dead)]
    stage.asks("a call", "push 2")
    assert stage.in_vain == [(dead, "a call", "push 2")]
    stage.s1 = process("worker 1", 1)
    stage.asks("a call", "push 3")
    assert stage.calls[1:] == [("sent", stage.s1, 1)], "to its next incarnation"
