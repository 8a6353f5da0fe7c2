"""One party: effects of the loop box, messages for the other box, and the end of both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from paceline.core.collective.mean_server import Part
from paceline.core.coordination.party import server, worker
from paceline.core.effects import SERVERS, Call, Mean, Reply, Tell
from paceline.core.errors import Diverged, PeerLost, ProtocolError, Stopped, TimedOut
from paceline.core.local.push_sum import Share
from paceline.live.control.link_probe import measure_link
from paceline.live.node.published_state import FREIGHT_LENGTH
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.fakes import happened, in_background
from tests.live.node_fixture import (
    LAYOUT,
    TEN,
    WORK,
    Answerer,
    AnswersLater,
    Ask,
    Asker,
    Said,
    Stage,
    asker,
    echo,
    nothing,
    servers,
)


def test_a_loop_box_may_answer_a_call_itself(stage: Stage) -> None:
    node, box = stage.node(worker(0)), AnswersLater()
    node.place(box, LAYOUT)
    node.advance()
    caller, role = asker(stage, Call(0, Ask(v=TEN, n=1)), WORK, rank=1)
    answered = in_background(caller.advance)
    assert happened(box.came)
    node.advance()
    answered()
    assert role.results[0].n == 9


def test_who_tells_what_it_should_ask_gets_no_answer_and_a_strike(stage: Stage) -> None:
    """A role answers such a message by another one, perhaps from its loop, and cannot see that nobody waits."""
    box = Asker(WORK)
    box.on = lambda now, src, message: iter(())  # type: ignore[method-assign]
    node = stage.node(worker(0))
    node.place(box, LAYOUT)
    with pytest.raises(ProtocolError, match="has asked nothing"):
        node.release(box, [Reply(1, Said(v=TEN, n=1))])
    node.deliver(worker(1), Envelope(Kind.TELL, Said(v=TEN, n=1)))
    node.release(box, [Reply(1, Said(v=TEN, n=1))])
    assert node.message_checks.strikes == {worker(1): 1}


class CallsItself(Asker):
    """Answers its own call when worker 1 tells it something, and a second one at once."""

    def on(self, now: float, src: int, message: Any) -> Iterator[Any]:
        if src == 1 or message.n == 2:
            yield Reply(0, Said(v=message.v, n=message.n + 1))


def test_a_worker_may_call_itself_and_be_answered_because_of_another_one(stage: Stage) -> None:
    box = CallsItself(Call(0, Ask(v=TEN, n=1)), Call(0, Ask(v=TEN, n=2)), WORK)
    node = stage.node(worker(0))
    node.place(box, LAYOUT)
    node.begin(None)  # its first call is open
    other, _ = asker(stage, Tell(0, Ask(v=TEN, n=8)), WORK, rank=1)
    other.advance()
    assert node.finish() is WORK
    assert [said.n for said in box.results] == [9, 3]
    assert all(said.v is TEN for said in box.results[1:])  # it passes no transport


def test_a_message_before_there_is_a_role_is_a_protocol_error(stage: Stage) -> None:
    node = stage.node(server(0))
    with pytest.raises(ProtocolError, match="server 0 got Ask before it had a role"):
        node.deliver(worker(0), Envelope(Kind.TELL, Ask(v=TEN, n=1)))
    with pytest.raises(ProtocolError, match="server 0 got Part before it had a role"):
        node.deliver(worker(0), Envelope(Kind.CALL, Part(v=TEN, among=(0,), tag="t", weight=1.0), 1))


# ---- room ------------------------------------------------------------------------------------------------
def test_no_room_for_more_than_the_model(stage: Stage) -> None:
    node, _ = asker(stage, WORK)
    assert [len(v) for v in node.room_for(server(0), Kind.CALL, 1, [10, 3])] == [10, 3]
    with pytest.raises(ProtocolError, match="server 0 sends a vector of 11 elements, worker 0 expects 10 at most"):
        node.room_for(server(0), Kind.CALL, 1, [1, 11])


# ---- the end ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("error", [None, PeerLost("the coordinator is gone")])
def test_stop_wakes_whoever_waits_and_whoever_comes_later(stage: Stage, error: BaseException | None) -> None:
    roles = servers(stage, nothing)
    node, _ = asker(stage, Call(SERVERS, Ask(v=TEN, n=1)), WORK)
    waiting = in_background(node.advance)
    expected = type(error or Stopped())
    assert all(role.heard() for role in roles)
    assert not node.stopped
    node.stop(error)
    with pytest.raises(expected):
        waiting()
    with pytest.raises(expected):
        node.advance()
    with pytest.raises(expected):
        node.mean(Mean(TEN, (0,), "t"))
    assert node.stopped


def test_the_first_reason_to_stop_is_the_one_that_is_told(stage: Stage) -> None:
    node, _ = asker(stage, WORK)
    node.stop(Stopped("samples"))
    node.stop(PeerLost("later"))
    with pytest.raises(Stopped, match="samples"):
        node.advance()


def test_a_wait_that_takes_too_long_says_what_for(stage: Stage) -> None:
    servers(stage, nothing)
    node, _ = asker(stage, Call(SERVERS, Ask(v=TEN, n=1)), WORK, timeout_s=0.02)
    with pytest.raises(TimedOut, match="waited 0 s for the answer of servers to Ask"):
        node.advance()


# ---- time ------------------------------------------------------------------------------------------------
def test_a_wait_is_counted_as_waiting_also_when_it_is_cut_short(stage: Stage) -> None:
    servers(stage, nothing)
    node, _ = asker(stage, Call(SERVERS, Ask(v=TEN, n=1)), WORK, timeout_s=0.05)
    told: list[tuple[float, float]] = []
    node.times.on_wait = lambda *seconds: told.append(seconds)
    with pytest.raises(TimedOut):
        node.advance()
    assert node.times.waiting + node.times.communicating >= 0.05
    assert node.times.waiting > node.times.communicating
    assert told == [(node.times.waiting, node.times.communicating, node.times.hidden)]
    node.times.reset()
    assert (node.times.waiting, node.times.communicating) == (0, 0)


def test_the_clock_counts_from_the_start_of_training(stage: Stage) -> None:
    node, _ = asker(stage, WORK)
    node._began -= 1000.0  # long ago
    assert node.now() >= 1000
    node.start_clock()
    assert 0 <= node.now() < 1000


def test_the_speed_of_a_link_is_that_of_bytes_that_came(stage: Stage) -> None:
    stage.node(server(1))
    node = stage.node(worker(0))
    sent = stage.hub.find(server(1))
    assert sent is not None
    latency, seconds_per_byte = measure_link(node, server(1), tries=2)
    assert latency > 0
    assert seconds_per_byte > 0
    assert sent.traffic()[0] == 2 * 4 * FREIGHT_LENGTH


# ---- a role that cannot handle a message -------------------------------------------------------------------------
class Refuses(Answerer):
    """Raises an exception over messages with a negative number, and keeps whose messages were dropped."""

    def __init__(self, error: Exception) -> None:
        super().__init__(echo)
        self.error, self.refused = error, list[int]()

    def on(self, now: float, src: int, message: Any) -> Iterator[Any]:
        if message.n < 0:
            raise self.error
        yield from super().on(now, src, message)

    def on_refused(self, now: float, rank: int, message: Any) -> Iterator[Any]:
        self.refused.append(rank)
        yield from ()


def test_an_exception_over_a_message_is_a_strike_and_the_receiver_goes_on(stage: Stage) -> None:
    role, node = Refuses(ValueError("vectors of 9 and 10 elements")), stage.node(worker(2))
    node.place(role)
    liar, _ = asker(stage, Call(2, Ask(v=TEN, n=-1)), WORK, rank=1)
    with pytest.raises(PeerLost):
        liar.advance()
    assert node.message_checks.strikes[worker(1)] == 1
    assert role.refused == [1]
    other, answered = asker(stage, Call(2, Ask(v=TEN, n=5)), WORK, rank=0)
    other.advance()
    assert answered.results[0].n == 5
    assert not stage.failures()


def test_a_server_has_whoever_sent_it_expelled(stage: Stage) -> None:
    role, node, expelled = Refuses(ValueError("no")), stage.node(server(0)), list[tuple[int, str]]()
    node.place(role)
    node.message_checks.report_to(
        expel=lambda rank, why: expelled.append((rank, why)), on_strike=lambda src, why, strike: None
    )
    node.deliver(worker(1), Envelope(Kind.TELL, Ask(v=TEN, n=-1)))
    assert expelled == [(1, "false claims: a message that cannot be: Ask: ValueError('no')")]


@pytest.mark.parametrize("error", [MemoryError(), Diverged("the model has diverged")])
def test_what_no_message_causes_ends_the_receiver(stage: Stage, error: Exception) -> None:
    node = stage.node(worker(2))
    node.place(Refuses(error))
    with pytest.raises(type(error)):
        node.deliver(worker(1), Envelope(Kind.TELL, Ask(v=TEN, n=-1)))
    with pytest.raises(type(error)):
        node.deliver(server(0), Envelope(Kind.TELL, Ask(v=TEN, n=-1)))
    assert not node.message_checks.strikes


def test_a_worker_drops_a_vector_of_another_length_than_the_model(stage: Stage) -> None:
    role, node = Refuses(ValueError()), stage.node(worker(2))
    node.place(role, LAYOUT)
    share = Share(w=TEN[:9], weight=0.5)
    assert not node.admits(worker(1), Envelope(Kind.TELL, share))
    assert not node.fits(worker(0), Envelope(Kind.TELL, share))
    assert role.refused == [1, 0]
    assert node.admits(worker(1), Envelope(Kind.TELL, Share(w=TEN, weight=0.5)))
    assert {str(who): count for who, count in node.message_checks.strikes.items()} == {"worker 1": 1, "worker 0": 1}
