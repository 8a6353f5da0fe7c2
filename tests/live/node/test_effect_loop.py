"""Effects of the loop box are carried out one after the other, or beside it."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pytest

from paceline.core.collective.mean_server import Averaged, MeanServer
from paceline.core.coordination import party
from paceline.core.coordination.party import server, worker
from paceline.core.effects import COORDINATOR, SERVERS, Call, Effect, Mean, Reply, Start, Tell, Train, Wait
from paceline.core.errors import Stopped
from paceline.live.node.hosted_slice import ServedSlice
from paceline.live.protocol.pending_reply import PendingReply
from tests.live.fakes import NumpyMemory, happened, in_background
from tests.live.node_fixture import (
    LAYOUT,
    PLACE,
    TEN,
    WHOLE,
    WORK,
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


def test_what_waits_for_the_loop_to_have_sent_is_done_once_in_order_also_when_the_loop_fails(stage: Stage) -> None:
    done: list[int] = []
    node = stage.node(worker(0))

    def run() -> Generator[Effect, Any, None]:
        for n in (1, 2):
            node._loop.when_sent(lambda n=n: done.append(n))  # type: ignore[misc]
        assert done == [], "the role is at a step"
        raise ValueError("the scheme has a bug")
        yield WORK

    node.place(Loop(run), WHOLE)
    node._loop.when_sent(lambda: done.append(0))
    assert done == [0], "nothing is under way"
    done.clear()
    with pytest.raises(ValueError, match="the scheme has a bug"):
        node.advance()
    assert done == [1, 2]
