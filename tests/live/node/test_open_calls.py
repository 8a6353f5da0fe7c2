"""Calls that are open at this party, and calls of its own that wait for an answer."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from paceline.core.coordination import party
from paceline.core.coordination.party import server, worker
from paceline.core.effects import COORDINATOR, SERVERS, Call, Effect, Mean, Reply, Start, Wait
from paceline.core.errors import PeerLost, ProtocolError, Stopped, TimedOut
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.fakes import address, happened, in_background
from tests.live.node_fixture import (
    LAYOUT,
    SHARDS,
    TEN,
    WHOLE,
    WORK,
    Answerer,
    AnswersLater,
    Ask,
    Loop,
    Said,
    Stage,
    asker,
    nothing,
    servers,
)


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


def test_an_answer_to_no_question_is_a_protocol_error_until_the_run_is_over(stage: Stage) -> None:
    node, _ = asker(stage, WORK)
    answer = Envelope(Kind.REPLY, Said(v=TEN, n=1), 77)
    with pytest.raises(ProtocolError, match="server 0 answered a question that worker 0 did not ask"):
        node.deliver(server(0), answer)
    node.stop()
    node.deliver(server(0), answer)


def test_answers_of_the_shards_are_received_side_by_side(stage: Stage) -> None:
    servers(stage, nothing)
    node, _ = asker(stage, WORK)
    node.out.call(SERVERS, Ask(v=TEN, n=1))
    ids = sorted(node.calls._calls)
    rooms = [node.room_for(server(s), Kind.REPLY, ids[s], [SHARDS[s].stop - SHARDS[s].start])[0] for s in (2, 0, 1)]
    assert address(rooms[2]) == address(rooms[1]) + 4 * 3
    assert address(rooms[0]) == address(rooms[1]) + 4 * 6


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
    kept = [call.pending.what for call in node.calls.unanswered if call.part == 1]
    assert kept == [], "nobody will answer that part of the mean, so nothing of it is kept"
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
