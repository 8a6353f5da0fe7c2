"""What becomes of the open calls of a simulated process: of its role, and of a worker that leaves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paceline.core.coordination.party import Party, server, worker
from paceline.core.errors import PeerLost, ProtocolError, Undone
from paceline.core.message import message
from paceline.sim.faults.parties.open_calls import SimulatedCalls


@message("tests.AskedOfSeveral")
class Push:
    """A message without vectors."""

    n: int


def process(who: Party, incarnation: int = 0) -> Any:
    return SimpleNamespace(
        name=str(who), who=who, me=who.index, kind=who.kind, incarnation=incarnation, process=(str(who), incarnation)
    )


class Question:
    """One question that is no role's."""

    def __init__(self, to: Any) -> None:
        self.to, self.again, self.errors = to, list[Any](), list[Exception]()

    def send_again(self, number: int, to: Any) -> None:
        self.again.append((number, to))

    def fail(self, error: Exception) -> None:
        self.errors.append(error)


class Stage:
    """Worker 0 and whom it asks: worker 1 and two servers, of which `successor` takes the place of server 0."""

    def __init__(self, *, replaced: bool = True) -> None:
        self.w0, self.w1 = process(worker(0)), process(worker(1))
        self.s0, self.s1, self.successor = process(server(0)), process(server(1)), process(server(0), 1)
        self.given: list[tuple[Any, Any, int]] = []
        self.failed: list[tuple[Any, str]] = []
        self.sent: list[tuple[Any, Any]] = []
        self.posted_to: list[Any] = []
        self.now, self.heap, self.streams, self.messaging = 0.0, self, self, self
        self.asked = "asked"
        self.server_views: dict[Any, int] = {}
        self.members = SimpleNamespace(servers=object() if replaced else None)
        self.world = SimpleNamespace(servers=[self.s0, self.s1])
        self.calls = SimulatedCalls(self, lambda src, to: to)  # type: ignore[arg-type]
        self.answers = self.calls.those_that_count(lambda call, message, me: self.given.append((call, message, me)))

    def posted(self, src: Any, to: Any) -> None:
        self.posted_to.append(to)

    def push(self, at: float, act: Any, *args: Any) -> None:
        act(*args)

    def lost(self, call: Any, name: str) -> None:
        self.failed.append((call, name))

    def send(self, src: Any, dst: Any, nbytes: int, act: Any, args: Any) -> None:
        assert (src, act, args[0], nbytes) == (self.w0, "asked", dst, 0)
        self.sent.append((dst, args[2]))

    def asks(self, *whom: Any, n: int = 1) -> Any:
        call = SimpleNamespace(incarnation=SimpleNamespace(party=self.w0), numbers=None)
        for dst in whom:
            self.calls.opens(self.w0, dst, call, Push(n=n))
        return call


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_each_part_of_a_call_is_answered_once(stage: Stage) -> None:
    call = stage.asks(stage.s0, stage.s1)
    stage.answers(call, "1", 1)
    assert stage.calls.is_open(call)
    stage.answers(call, "0", 0)
    assert stage.given == [(call, "1", 1), (call, "0", 0)]
    assert not stage.calls.is_open(call)
    with pytest.raises(ProtocolError, match="server 1 answered a question that worker 0 did not ask"):
        stage.answers(call, "1 again", 1)


def test_a_mean_that_workers_carry_themselves_passes(stage: Stage) -> None:
    mean = SimpleNamespace(numbers=None)
    stage.answers(mean, "mean", 0)
    assert stage.given == [(mean, "mean", 0)]
    assert not stage.calls.is_open(mean)  # type: ignore[arg-type]
    assert not stage.calls.is_open(None)


def test_calls_to_a_lost_worker_fail_and_those_to_a_lost_server_wait_for_its_successor(stage: Stage) -> None:
    first, second = stage.asks(stage.w1), stage.asks(stage.s0)
    stage.calls.lost(stage.w0, stage.w1)
    stage.calls.lost(stage.w0, stage.s0)
    assert stage.failed == [(first, "worker 1")]
    assert (stage.calls.is_open(first), stage.calls.is_open(second)) == (False, True)
    assert stage.calls.of(stage.w0).is_away(server(0))


def test_calls_to_a_restored_server_are_sent_again_in_their_order_whoever_made_them(stage: Stage) -> None:
    stage.asks(stage.s0, stage.s1, n=1)
    question = Question(stage.s0)
    number = stage.calls.of(stage.w0).open(server(0), question, None)
    last = stage.asks(stage.s0, n=2)
    stage.world.servers[0] = stage.successor
    stage.calls.sends_again(stage.w0, [server(0)])
    assert stage.sent == [(stage.successor, Push(n=1)), (stage.successor, Push(n=2))]
    assert question.again == [(number, stage.successor)]
    assert stage.posted_to == [stage.successor] * 2, "a leaver asks it whether it has taken them"
    stage.answers(last, "first", 0)
    stage.answers(last, "second", 0)
    assert stage.given == [(last, "first", 0)], "what is asked twice may be answered twice"


def test_where_servers_went_back_the_calls_to_them_end_and_no_others(stage: Stage) -> None:
    call, other, question = stage.asks(stage.s0, stage.s1), stage.asks(stage.w1), Question(stage.s0)
    stage.calls.of(stage.w0).open(server(0), question, None)
    stage.calls.servers_went_back(stage.w0, 1)
    assert (stage.calls.is_open(call), stage.calls.is_open(other)) == (False, True)
    assert [type(error) for error in question.errors] == [Undone]
    assert stage.failed == [(call, "server 0"), (call, "server 1")], "the loop starts anew when it is resumed"


def test_a_role_that_asks_in_a_view_that_is_over_gets_an_error(stage: Stage) -> None:
    stage.calls.servers_went_back(stage.w0, 1)
    late = stage.asks(stage.s0)
    assert (stage.failed, stage.calls.is_open(late)) == ([(late, "server 0")], False)


def test_a_call_that_is_declined_fails_unless_it_has_failed_before(stage: Stage) -> None:
    first, second = stage.asks(stage.w1), stage.asks(stage.w1)
    stage.calls.has_no_answer(first, stage.w1)
    assert stage.failed == [(first, "worker 1")]
    stage.calls.lost(stage.w0, stage.w1)
    stage.calls.has_no_answer(second, stage.w1)
    assert stage.failed == [(first, "worker 1"), (second, "worker 1")]


def test_a_call_that_cannot_be_sent_fails_unless_another_one_will_take_that_place(stage: Stage) -> None:
    to_server, to_worker = stage.asks(stage.s0), stage.asks(stage.w1)
    stage.calls.is_not_sent(to_server, stage.s0)
    stage.calls.is_not_sent(to_worker, stage.w1)
    assert stage.failed == [(to_worker, "worker 1")]
    assert stage.calls.is_open(to_server)
    alone = Stage(replaced=False)
    call = alone.asks(alone.s0)
    alone.calls.is_not_sent(call, alone.s0)
    assert alone.failed == [(call, "server 0")]


def test_whom_a_call_was_sent_to_last_is_known_while_it_is_open(stage: Stage) -> None:
    call = stage.asks(stage.s0)
    stage.calls.of(stage.w0).open(worker(1), Question(stage.w1), None)
    stage.calls.is_sent(call, stage.s0, 3)
    assert list(stage.calls.sent_by(stage.w0)) == [(stage.s0, 3)]
    stage.calls.is_sent(call, stage.successor, 1)
    assert list(stage.calls.sent_by(stage.w0)) == [(stage.successor, 1)]
    stage.answers(call, "answer", 0)
    assert list(stage.calls.sent_by(stage.w0)) == []


def test_a_process_that_was_restarted_gets_no_answer_to_what_it_asked_before(stage: Stage) -> None:
    before = stage.asks(stage.s0)
    stage.calls.forget(stage.w0)
    after = stage.asks(stage.s0)
    stage.answers(before, "late", 0)
    stage.answers(after, "answer", 0)
    assert stage.given == [(after, "answer", 0)]


def test_a_role_hears_that_its_call_was_lost_or_is_void(stage: Stage) -> None:
    calls = stage.calls.of(stage.w0)
    for error in (Undone(), PeerLost("worker 1")):
        stage.asks(stage.w1)
        (question,) = calls.lost(stage.w1.who)
        question.fail(error)
        assert len(stage.failed) == 1, error
        stage.failed.clear()
