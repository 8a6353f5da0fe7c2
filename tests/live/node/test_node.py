"""One party: effects of the loop box, messages for the other box, and the end of both."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pytest

from paceline.core.collective.mean_server import Averaged, MeanServer, Part
from paceline.core.effects import COORDINATOR, SERVERS, Call, Compute, Effect, Mean, Reply, Start, Tell, Train, Wait
from paceline.core.errors import PeerLost, ProtocolError, Stopped, TimedOut, Undone
from paceline.live import party
from paceline.live.control.link_probe import measure_link
from paceline.live.node.hosted_slice import ServedSlice
from paceline.live.node.published_state import FREIGHT_LENGTH
from paceline.live.party import server, worker
from paceline.live.protocol.pending_reply import PendingReply
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.fakes import NumpyMemory, address, happened, in_background, take, vector
from tests.live.node_fixture import (
    LAYOUT,
    PLACE,
    SHARDS,
    WHOLE,
    Answerer,
    Ask,
    Asker,
    Loop,
    Said,
    Stage,
    asker,
    echo,
    nothing,
    servers,
)

TEN = np.arange(10, dtype=np.float32)
WORK = Compute(TEN)


# ---- the loop box ----------------------------------------------------------------------------------------
def test_local_work_comes_out_and_its_result_goes_in(stage: Stage) -> None:
    node, role = asker(stage, WORK, Train(TEN, 3))
    assert node.advance() is WORK
    assert node.advance("a gradient") == Train(TEN, 3)
    with pytest.raises(Stopped):
        node.advance("weights")
    assert role.results == ["a gradient", "weights"]


def test_a_call_to_the_servers_is_cut_and_the_answers_are_joined(stage: Stage) -> None:
    def answer(src: int, ask: Any) -> Iterator[Reply]:
        yield Reply(src, Said(v=ask.v * 2, n=ask.n + int(ask.v[0])))

    roles = servers(stage, answer)
    node, role = asker(stage, Call(SERVERS, Ask(v=TEN, n=4)), WORK)
    assert node.advance() is WORK
    assert role.results[0].v.tolist() == (TEN * 2).tolist()
    assert role.results[0].n == 4, "what the shard that is furthest behind says"
    assert [r.came[0][1].v.tolist() for r in roles] == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]
    assert [r.came[0][0] for r in roles] == [0, 0, 0]


def test_a_tell_is_not_answered_and_comes_before_what_follows_it(stage: Stage) -> None:
    (role,) = servers(stage, count=1)
    role.answer = lambda src, ask: nothing(src, ask) if ask.n == 1 else echo(src, ask)
    node = stage.node(worker(0))
    mine = Asker(Tell(SERVERS, Ask(v=TEN, n=1)), Call(SERVERS, Ask(v=TEN, n=2)), WORK)
    node.place(mine, WHOLE)
    node.advance()
    assert mine.results[0] is None
    assert [ask.n for _, ask in role.came] == [1, 2]


def test_the_coordinator_and_a_worker_can_be_called(stage: Stage) -> None:
    stage.node(party.COORDINATOR).place(Answerer(echo))
    stage.node(worker(2)).place(Answerer(echo))
    node, role = asker(stage, Call(COORDINATOR, Ask(v=TEN, n=1)), Call(2, Ask(v=TEN, n=2)), WORK)
    node.advance()
    assert [result.n for result in role.results] == [1, 2]


def test_what_was_started_goes_on_in_the_background_until_it_is_waited_for(stage: Stage) -> None:
    let_go = threading.Event()

    def late(src: int, ask: Any) -> Iterator[Any]:
        assert happened(let_go)
        yield from echo(src, ask)

    servers(stage, late)
    results: list[Any] = []

    def run() -> Generator[Effect, Any, None]:
        one = yield Start(Call(SERVERS, Ask(v=TEN, n=1)))
        two = yield Start(Call(SERVERS, Ask(v=TEN + 1, n=2)))
        yield WORK
        for ticket in (two, one, one):
            results.append((yield Wait(ticket)))
        yield WORK

    node = stage.node(worker(0))
    node.place(Loop(run), LAYOUT)
    assert node.advance() is WORK, "before anything was answered"
    let_go.set()
    node.advance()
    assert [result.n for result in results] == [2, 1, 1]
    assert results[1].v.tolist() == (TEN * 2).tolist()


def test_the_servers_carry_a_mean_when_nobody_else_does(stage: Stage) -> None:
    for shard in range(3):
        stage.node(server(shard)).host([ServedSlice(mean_server=MeanServer(None, PLACE))])
    nodes = [asker(stage, Mean(TEN * rank, (0, 1), "t", 1.0 + rank), WORK, rank=rank) for rank in range(2)]
    first = in_background(nodes[0][0].advance)
    nodes[1][0].advance()
    assert first() is WORK
    for _, role in nodes:
        np.testing.assert_allclose(role.results[0].v, TEN * 2 / 3, rtol=1e-6)
        assert role.results[0].weight == 3.0


class Carrier:
    def __init__(self) -> None:
        self.carried: list[Mean] = []

    def begin(self, effect: Mean) -> PendingReply:
        self.carried.append(effect)
        pending = PendingReply("a mean", 1, NumpyMemory())
        pending.put(0, Averaged(v=effect.v, weight=effect.weight), 0.0)
        return pending


def test_a_carrier_carries_every_mean_also_one_outside_the_scheme(stage: Stage) -> None:
    carrier = Carrier()
    node = stage.node(worker(0))
    inside, background, outside = (Mean(TEN, (0,), tag) for tag in "abc")
    node.place(Asker(inside, Start(background), WORK), LAYOUT, carrier)
    node.advance()
    assert node.mean(outside).v is TEN
    assert carrier.carried == [inside, background, outside]


class AnswersLater(Loop):
    """Asked between two steps; answers after the second."""

    def __init__(self) -> None:
        super().__init__(self.work)
        self.came = threading.Event()

    def work(self) -> Generator[Effect, Any, None]:
        yield WORK
        yield Reply(1, Said(v=TEN, n=9))
        yield WORK

    def on(self, now: float, src: int, message: Any) -> Iterator[Any]:
        self.came.set()
        yield from ()


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


def test_who_is_lost_while_it_is_answered_is_not_missed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is closed already, but this party has not been told that it is lost."""
    node, box = stage.node(worker(0)), AnswersLater()
    node.place(box, LAYOUT)
    node.advance()
    caller, _ = asker(stage, rank=1)
    caller.out.call(0, Ask(v=TEN, n=1))
    assert happened(box.came)

    def closed(*_: Any) -> None:
        raise PeerLost("the connection is closed")

    monkeypatch.setattr(node.out, "send", closed)
    assert node.advance() is WORK


# ---- the other box ---------------------------------------------------------------------------------------
class Watchful(Loop):
    """Says when `on` has been entered."""

    def __init__(self, run: Any) -> None:
        super().__init__(run)
        self.entered = threading.Event()

    def on(self, now: float, src: int, message: Any) -> Iterator[Any]:
        self.entered.set()
        yield from ()


def test_on_is_never_interleaved_with_run(stage: Stage) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def run() -> Generator[Effect, Any, None]:
        inside.set()
        assert happened(go_on)
        assert not role.entered.is_set()
        yield WORK

    role = Watchful(run)
    node = stage.node(worker(0))
    node.place(role, LAYOUT)
    advanced = in_background(node.advance)
    assert happened(inside)
    stage.node(worker(1)).place(Asker(Tell(0, Ask(v=TEN, n=1)), WORK), LAYOUT)
    stage.nodes[worker(1)].advance()
    assert not role.entered.wait(0.05), "the message is handled in the middle of a step of the loop box"
    go_on.set()
    assert advanced() is WORK
    assert happened(role.entered)


def test_the_oldest_open_call_of_a_worker_is_answered_first(stage: Stage) -> None:
    parked: list[int] = []

    def park(src: int, ask: Any) -> Iterator[Reply]:
        parked.append(ask.n)
        if len(parked) == 3:
            yield from (Reply(src, Said(v=TEN, n=n)) for n in (10, 20, 30))

    servers(stage, park, count=1)

    def run() -> Generator[Effect, Any, None]:
        tickets = []
        for n in range(3):
            tickets.append((yield Start(Call(SERVERS, Ask(v=TEN, n=n)))))
        for ticket in tickets:
            results.append((yield Wait(ticket)).n)
        yield WORK

    results: list[int] = []
    node = stage.node(worker(0))
    node.place(Loop(run), WHOLE)
    node.advance()
    assert results == [10, 20, 30]


def test_the_open_calls_of_a_worker_that_is_gone_are_dropped(stage: Stage) -> None:
    came = threading.Semaphore(0)
    answer_all: list[int] = []

    def park(src: int, ask: Any) -> Iterator[Reply]:
        came.release()
        yield from (Reply(rank, Said(v=TEN, n=ask.n)) for rank in answer_all)

    (role,) = servers(stage, park, count=1)
    one, _ = asker(stage, Call(SERVERS, Ask(v=TEN, n=1)), WORK, rank=1)
    one.place(one.role, WHOLE)
    waiting = in_background(one.advance)
    assert came.acquire(timeout=15)
    stage.nodes[server(0)].gone(1)
    assert role.left == [1]
    answer_all.append(1)
    again = stage.nodes[worker(1)].out.call(SERVERS, Ask(v=TEN, n=2))
    assert again.wait(15.0).n == 2, "the answer to the second call went to the first"
    one.stop()
    with pytest.raises(Stopped):
        waiting()


def test_a_message_before_there_is_a_role_is_a_protocol_error(stage: Stage) -> None:
    node = stage.node(server(0))
    with pytest.raises(ProtocolError, match="server 0 got Ask before it had a role"):
        node.deliver(worker(0), Envelope(Kind.TELL, Ask(v=TEN, n=1)))
    with pytest.raises(ProtocolError, match="server 0 got Part before it had a role"):
        node.deliver(worker(0), Envelope(Kind.CALL, Part(v=TEN, among=(0,), tag="t", weight=1.0), 1))


def test_an_answer_to_no_question_is_a_protocol_error_until_the_run_is_over(stage: Stage) -> None:
    node, _ = asker(stage, WORK)
    answer = Envelope(Kind.REPLY, Said(v=TEN, n=1), 77)
    with pytest.raises(ProtocolError, match="server 0 answered a question that worker 0 did not ask"):
        node.deliver(server(0), answer)
    node.stop()
    node.deliver(server(0), answer)


# ---- room ------------------------------------------------------------------------------------------------
def test_no_room_for_more_than_the_model(stage: Stage) -> None:
    node, _ = asker(stage, WORK)
    assert [len(v) for v in node.room_for(server(0), Kind.CALL, 1, [10, 3])] == [10, 3]
    with pytest.raises(ProtocolError, match="server 0 sends a vector of 11 elements, worker 0 expects 10 at most"):
        node.room_for(server(0), Kind.CALL, 1, [1, 11])


def test_answers_of_the_shards_are_received_side_by_side(stage: Stage) -> None:
    servers(stage, nothing)
    node, _ = asker(stage, WORK)
    node.out.call(SERVERS, Ask(v=TEN, n=1))
    ids = sorted(node.calls._calls)
    rooms = [node.room_for(server(s), Kind.REPLY, ids[s], [SHARDS[s].stop - SHARDS[s].start])[0] for s in (2, 0, 1)]
    assert address(rooms[2]) == address(rooms[1]) + 4 * 3
    assert address(rooms[0]) == address(rooms[1]) + 4 * 6


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


def test_a_look_at_another_party_works_also_when_the_run_is_over(stage: Stage) -> None:
    for shard, role in enumerate(servers(stage, nothing)):
        role.w = TEN[SHARDS[shard]]
    node, _ = asker(stage, WORK)
    assert node.read_state(SERVERS, "weights").tolist() == TEN.tolist()
    for each in stage.nodes.values():
        each.stop()
    assert node.read_state(SERVERS, "weights").tolist() == TEN.tolist()
    stage.nodes[server(0)].published["buffers"] = lambda _: vector(5)
    stage.node(party.EVALUATOR).place(None, WHOLE)
    assert stage.nodes[party.EVALUATOR].read_state(SERVERS, "buffers").tolist() == [5]


def test_what_a_party_does_not_show_cannot_be_looked_at(stage: Stage) -> None:
    servers(stage, nothing, count=1)
    node = stage.node(worker(0), timeout_s=0.05)
    node.place(None, WHOLE)
    with pytest.raises(TimedOut):
        node.read_state(SERVERS, "keys")
    refused = take(stage.behind[server(0)].failures)
    assert isinstance(refused, ProtocolError)
    assert str(refused) == "worker 0 asks server 0 for its keys, which it does not publish"


def test_whoever_asks_for_what_was_kept_and_is_no_more_is_told_so(stage: Stage) -> None:
    servers(stage, nothing, count=1)
    shows = stage.nodes[server(0)].published
    node = stage.node(worker(0))
    node.place(None, WHOLE)
    for name in ("/momentum", "snapshot/weights"):
        shows[name] = lambda _: vector(5)
        stage.nodes[server(0)].begin_server_view(stage.nodes[server(0)].server_view + 1)
        assert node.read_state(SERVERS, name).tolist() == [5]
        shows.withdraw([name])
        with pytest.raises(Undone, match="server 0 no longer publishes the state that it had kept"):
            node.read_state(SERVERS, name)


def test_losing_a_party_fails_the_calls_that_are_open_at_it_and_no_others(stage: Stage) -> None:
    roles = servers(stage, nothing)
    stage.node(party.COORDINATOR).place(Answerer(nothing))
    node, _ = asker(stage, Call(SERVERS, Ask(v=TEN, n=1)), WORK)
    other = node.out.call(COORDINATOR, Ask(v=TEN, n=1))
    waiting = in_background(node.advance)
    assert all(role.heard() for role in roles)
    lost = stage.hub.find(server(1))
    assert lost is not None
    lost.close()
    with pytest.raises(PeerLost, match="lost server 1: it left"):
        waiting()
    with pytest.raises(PeerLost, match="worker 0 has no connection to server 1"):
        node.mean(Mean(TEN, (0,), "t"))
    with pytest.raises(TimedOut):
        other.wait(0.0)


def test_a_worker_that_is_lost_does_not_keep_the_others_from_their_answers(stage: Stage) -> None:
    parked: list[int] = []

    def park(src: int, ask: Any) -> Iterator[Reply]:
        parked.append(src)
        if len(parked) == 2:
            yield from (Reply(rank, Said(v=TEN, n=1)) for rank in parked)

    (role,) = servers(stage, park, count=1)
    first, _ = asker(stage, rank=0)
    first.place(None, WHOLE)
    first.out.call(SERVERS, Ask(v=TEN, n=1))
    assert role.heard()
    gone = stage.hub.find(worker(0))
    assert gone is not None
    gone.close()
    second, mine = asker(stage, Call(SERVERS, Ask(v=TEN, n=1)), WORK, rank=1)
    second.place(mine, WHOLE)
    assert second.advance() is WORK


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
