"""Workers that talk to one another, several calls and means under way at once, and those who leave."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.core.collective.mean_server import MeanServer
from paceline.core.coordination.party import server, worker
from paceline.core.effects import SERVERS, Call, Effect, Mean, Reply, Start, Tell, Wait
from paceline.core.errors import PeerLost, ProtocolError, Stopped
from paceline.live.node.hosted_slice import ServedSlice
from paceline.live.node.node import Node
from paceline.live.node.published_state import FINAL
from paceline.live.protocol.transport import Envelope, Kind
from tests.launch.process_tree import within
from tests.live.fakes import PATIENCE_SECONDS, in_background
from tests.live.node_fixture import LAYOUT, PLACE, TEN, WHOLE, WORK, Answerer, Ask, Asker, Loop, Said, Stage, nothing


def peers(stage: Stage, *roles: Any) -> list[Node]:
    nodes = [stage.node(worker(rank)) for rank in range(len(roles))]
    for rank, (node, role) in enumerate(zip(nodes, roles, strict=True)):
        node.place(role, WHOLE)
        node.neighbours.meet([other for other in range(len(roles)) if other != rank], range(rank))
    return nodes


def test_several_calls_of_one_worker_are_answered_in_their_order_whenever_that_is(stage: Stage) -> None:
    """An answer belongs to the oldest open call, so two questions that are under way at once stay apart."""
    parked: list[int] = []

    def in_pairs(src: int, ask: Any) -> Iterator[Reply]:
        parked.append(ask.n)
        if len(parked) % 2 == 0:
            yield Reply(src, Said(v=ask.v, n=parked[-2]))
            yield Reply(src, Said(v=ask.v, n=parked[-1]))

    results: list[int] = []

    def run() -> Generator[Effect, Any, None]:
        tickets = []
        for n in (1, 2, 3, 4):
            tickets.append((yield Start(Call(1, Ask(v=TEN, n=n)))))
        yield WORK
        for ticket in reversed(tickets):
            results.append((yield Wait(ticket)).n)
        yield WORK

    node, _ = peers(stage, Loop(run), Answerer(in_pairs))
    node.advance()
    node.advance()
    assert results == [4, 3, 2, 1]


def test_means_that_are_under_way_at_once_are_told_apart_by_their_tags(stage: Stage) -> None:
    two_at_once = SimpleNamespace(means_at_once=2)
    for shard in range(3):
        stage.node(server(shard)).host([ServedSlice(mean_server=MeanServer(two_at_once, PLACE))])
    results: dict[int, list[float]] = {0: [], 1: []}

    def run(rank: int, order: tuple[str, ...]) -> Generator[Effect, Any, None]:
        tickets = {}
        for tag in order:
            v = TEN * (rank if tag == "whole" else 10 * rank)
            tickets[tag] = yield Start(Mean(v if tag == "whole" else v[:4], (0, 1), tag))
        yield WORK
        for tag in ("part", "whole"):
            results[rank].append(float((yield Wait(tickets[tag])).v[1]))
        yield WORK

    nodes = [stage.node(worker(rank)) for rank in range(2)]
    for rank, node in enumerate(nodes):
        order = ("whole", "part") if rank else ("part", "whole")
        node.place(Loop(lambda rank=rank, order=order: run(rank, order)), LAYOUT)  # type: ignore[misc]
        node.advance()
    other = in_background(nodes[1].advance)
    nodes[0].advance()
    other()
    assert results == {0: [5.0, 0.5], 1: [5.0, 0.5]}, "each began them in an order of its own"


class Leaver(Answerer):
    def leave(self, now: float) -> Iterator[Any]:
        yield Tell(1, Ask(v=TEN, n=99))


def test_calls_of_one_that_has_left_are_declined_and_what_it_is_told_is_heard(stage: Stage) -> None:
    caught: list[str] = []

    def run() -> Generator[Effect, Any, None]:
        ticket = yield Start(Call(0, Ask(v=TEN, n=1)))
        yield WORK
        for effect in (Wait(ticket), Call(0, Ask(v=TEN, n=2))):
            try:
                yield effect
            except PeerLost as lost:
                caught.append(str(lost))
        yield Tell(0, Ask(v=TEN, n=3))
        yield WORK

    class Asking(Loop):
        def __init__(self) -> None:
            super().__init__(run)
            self.came: list[int] = []

        def on(self, now: float, src: int, message: Any) -> Iterator[Any]:
            self.came.append(message.n)
            yield from ()

    left, asking = Leaver(nothing), Asking()
    leaver, caller = peers(stage, left, asking)
    caller.advance()
    assert left.heard()
    leaver.leave()
    leaver.await_taken()
    assert asking.came == [99], "the last words have been heard when `await_taken` returns"
    caller.advance()
    assert caught == ["worker 0 has left"] * 2
    assert left.heard()
    assert [ask.n for _, ask in left.came] == [1, 3]


def test_one_without_a_coordinator_does_not_wait_for_servers_that_have_dropped_it(stage: Stage) -> None:
    """It was expelled while the run ended: nobody would tell it who takes a server's place."""
    stage.node(server(0)).host([])
    leaver = stage.node(worker(3))
    leaver.place(Loop(nothing), WHOLE)
    leaver.calls.retries = True
    leaver.stop()
    gone = stage.hub.find(server(0))
    assert gone is not None
    gone.drop(worker(3), 0, "it was expelled")
    leaver.stop(PeerLost("the coordinator is gone"))
    in_background(lambda: leaver.await_taken([server(0)]))()


class SlowTaker:
    """Takes a message in once it is let; `order` says whether a worker that leaves has gone before that."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self._go_on = threading.Event()

    def takes(self, src: int, message: Any) -> Iterator[Any]:
        self._go_on.wait(PATIENCE_SECONDS)
        self.order.append("taken in")
        yield from ()

    def lets_go(self) -> None:
        self._go_on.set()

    def order_of(self, leaver: Node, after: threading.Thread | None = None) -> list[str]:
        """Lets `leaver` leave, and goes on some time later, when `after` is over; returns what came first."""

        def leave() -> None:
            leaver.leave()
            leaver.await_taken()
            self.order.append("left")

        leaving = threading.Thread(target=leave)
        leaving.start()
        if after:
            after.join()
        leaving.join(0.2)  # without the wait it would be gone by now
        self.lets_go()
        leaving.join()
        return self.order


def test_one_that_leaves_waits_until_the_servers_have_what_it_has_asked_them(stage: Stage) -> None:
    """Otherwise a server could hear from the coordinator first that the worker is gone."""
    slow = SlowTaker()
    stage.node(server(0)).host([ServedSlice(WHOLE.length, Answerer(slow.takes))])
    node = stage.node(worker(0))
    node.place(Asker(Start(Call(SERVERS, Ask(v=TEN, n=1))), WORK), WHOLE)
    node.advance()

    assert slow.order_of(node) == ["taken in", "left"]


@pytest.mark.parametrize("to", [SERVERS, 1], ids=["a server", "a worker that came later"])
def test_one_that_leaves_waits_for_whoever_was_told_something(stage: Stage, to: Any) -> None:
    """Nobody answers a Tell, and a worker that came later is none of those that were met at the beginning."""
    slow = SlowTaker()
    stage.node(server(0)).host([ServedSlice(WHOLE.length, Answerer(slow.takes))])
    stage.node(worker(1)).place(Answerer(slow.takes), WHOLE)
    node = stage.node(worker(0))
    node.place(Asker(Tell(to, Ask(v=TEN, n=1)), WORK), WHOLE)
    node.advance()

    assert slow.order_of(node) == ["taken in", "left"]


def test_a_successor_is_not_asked_before_the_calls_that_its_server_has_not_answered_are_there(stage: Stage) -> None:
    """It would answer that it has taken everything, and the coordinator would hear that the worker has left."""
    before, slow = Answerer(nothing), SlowTaker()
    stage.node(server(0)).host([ServedSlice(WHOLE.length, before)])
    node = stage.node(worker(0))
    node.calls.retries = True
    node.place(Asker(Start(Call(SERVERS, Ask(v=TEN, n=1))), WORK), WHOLE)
    node.advance()
    assert before.heard()
    lost = stage.hub.find(server(0))
    assert lost is not None
    lost.close()
    assert within(PATIENCE_SECONDS, lambda: node.calls.is_away(server(0)))
    stage.node(server(0)).host([ServedSlice(WHOLE.length, Answerer(slow.takes))])
    restored = threading.Timer(0.1, lambda: node.out.ask_again([server(0)]))
    restored.start()

    assert slow.order_of(node) == ["taken in", "left"]
    restored.join()


def test_a_successor_is_asked_though_its_server_had_answered_that_it_has_taken_all(stage: Stage) -> None:
    """Its copy may lack what came last, so that is sent again while the leaver waits for another worker."""
    before, slow, other = Answerer(nothing), SlowTaker(), SlowTaker()
    stage.node(server(0)).host([ServedSlice(WHOLE.length, before)])
    stage.node(worker(1)).place(Answerer(other.takes), WHOLE)

    def run() -> Generator[Effect, Any, None]:
        yield Start(Call(SERVERS, Ask(v=TEN, n=1)))
        yield Tell(1, Ask(v=TEN, n=2))
        yield WORK

    node = stage.node(worker(0))
    node.calls.retries = True
    node.place(Loop(run), WHOLE)
    node.advance()
    assert before.heard()

    def replaced() -> None:
        waits_for_worker_1 = ["the answer of servers to Ask", "the that all is taken of worker 1"]
        assert within(
            PATIENCE_SECONDS, lambda: [call.pending.what for call in node.calls.unanswered] == waits_for_worker_1
        )
        lost = stage.hub.find(server(0))
        assert lost is not None
        lost.close()
        assert within(PATIENCE_SECONDS, lambda: node.calls.is_away(server(0)))
        stage.node(server(0)).host([ServedSlice(WHOLE.length, Answerer(slow.takes))])
        node.out.ask_again([server(0)])
        other.lets_go()

    replacing = threading.Thread(target=replaced)
    replacing.start()
    assert slow.order_of(node, after=replacing) == ["taken in", "left"]


def test_one_that_leaves_waits_for_what_it_passes_on_of_what_comes_back(stage: Stage) -> None:
    """Worker 1 has left before and sends the share back; the leaver hands it over to worker 2."""

    class Heir(Answerer):
        def leave(self, now: float) -> Iterator[Any]:
            yield Tell(1, Ask(v=TEN, n=1))

    def back(src: int, message: Any) -> Iterator[Any]:
        yield Tell(src, Ask(v=TEN, n=2))

    def pass_on(src: int, message: Any) -> Iterator[Any]:
        yield Tell(2, Ask(v=TEN, n=3))

    order: list[str] = []
    go_on = threading.Event()

    def slow(src: int, message: Any) -> Iterator[Any]:
        go_on.wait(PATIENCE_SECONDS)
        order.append(f"taken in: {message.n}")
        yield from ()

    leaver, _, _ = peers(stage, Heir(pass_on), Answerer(back), Answerer(slow))

    def leave() -> None:
        leaver.leave()
        leaver.await_taken()
        order.append("left")

    leaving = threading.Thread(target=leave)
    leaving.start()
    leaving.join(0.2)
    go_on.set()
    leaving.join()
    assert order == ["taken in: 3", "left"]


def test_one_that_waits_again_after_it_has_left_gives_back_what_comes_late_also_of_a_newcomer(stage: Stage) -> None:
    """Worker 2 came later. It had not heard that the leaver was gone when it sent it something."""
    returned: list[int] = []

    def back(src: int, message: Any) -> Iterator[Any]:
        yield Tell(src, Ask(v=TEN, n=2))

    def keep(src: int, message: Any) -> Iterator[Any]:
        returned.append(message.n)
        yield from ()

    leaver, _ = peers(stage, Answerer(back), Answerer(nothing))
    leaver.leave()
    leaver.await_taken()
    newcomer = stage.node(worker(2))
    newcomer.place(Answerer(keep), WHOLE)
    newcomer.neighbours.meet([0, 1], [0, 1])
    leaver.came(2)
    newcomer.out.tell(0, Ask(v=TEN, n=1))
    leaver.await_taken()
    assert returned == [2]


def test_one_that_leaves_does_not_wait_for_a_worker_that_dies_before_it_has_taken_its_last_words(stage: Stage) -> None:
    """That worker may have left, too: then nobody tells of its loss, and the broken connection is all there is."""
    came, go_on = threading.Semaphore(0), threading.Event()

    def hangs(src: int, message: Any) -> Iterator[Any]:
        came.release()
        go_on.wait(2 * PATIENCE_SECONDS)
        yield from ()

    leaver, _ = peers(stage, Leaver(nothing), Answerer(hangs))

    def leave() -> None:
        leaver.leave()
        leaver.await_taken()

    leaving = threading.Thread(target=leave)
    leaving.start()
    assert came.acquire(timeout=PATIENCE_SECONDS)
    leaving.join(0.2)
    assert leaving.is_alive(), "its last words are not taken in yet"
    leaver.lost(worker(1), "it crashed")
    leaving.join(PATIENCE_SECONDS)
    gone = not leaving.is_alive()
    go_on.set()
    leaving.join()
    assert gone


def test_a_late_answer_of_one_that_was_counted_as_lost_is_ignored(stage: Stage) -> None:
    """A worker that hangs is lost to the others, and answers all the same once it goes on."""
    came, go_on = threading.Semaphore(0), threading.Event()

    def hangs(src: int, ask: Any) -> Iterator[Tell | Reply]:
        came.release()
        go_on.wait(PATIENCE_SECONDS)
        yield Reply(src, Said(v=TEN, n=ask.n))
        yield Tell(src, Ask(v=TEN, n=7))

    asking = Answerer(nothing)
    caller, _ = peers(stage, asking, Answerer(hangs))
    answer = caller.out.call(1, Ask(v=TEN, n=1))
    assert came.acquire(timeout=PATIENCE_SECONDS)
    caller.lost(worker(1), "silent for 3 s")
    with pytest.raises(PeerLost, match="lost worker 1: silent for 3 s"):
        answer.wait(PATIENCE_SECONDS)
    go_on.set()
    assert asking.heard(), "what follows the answer on the same connection has come"


def test_a_scheme_that_does_not_expect_to_lose_a_peer_ends_with_it(stage: Stage) -> None:
    leaver, caller = peers(stage, Answerer(nothing), Asker(Call(0, Ask(v=TEN, n=1)), WORK))
    leaver.leave()
    with pytest.raises(PeerLost, match="worker 0 has left"):
        caller.advance()


def test_what_a_lost_worker_still_waits_for_is_answered_to_nobody(stage: Stage) -> None:
    came = threading.Semaphore(0)

    def park(src: int, ask: Any) -> Iterator[Reply]:
        came.release()
        if ask.n == 2:
            yield Reply(1, Said(v=TEN, n=1))
            yield Reply(src, Said(v=TEN, n=2))

    asked, lost, other = peers(stage, Answerer(park), Asker(Call(0, Ask(v=TEN, n=1)), WORK), Asker(WORK))
    waiting = in_background(lost.advance)
    assert came.acquire(timeout=15)
    asked.lost(worker(1), "it crashed")
    assert other.out.call(0, Ask(v=TEN, n=2)).wait(15.0).n == 2
    lost.stop()
    with pytest.raises(Stopped):
        waiting()


def test_what_one_answers_that_has_left_is_dropped_since_the_call_was_declined(stage: Stage) -> None:
    def when_told(src: int, ask: Any) -> Iterator[Reply]:
        if ask.n == 2:
            yield Reply(src, Said(v=TEN, n=1))

    answerer = Answerer(when_told)
    left, caller = peers(stage, answerer, Asker(WORK))
    pending = caller.out.call(0, Ask(v=TEN, n=1))
    assert answerer.heard()
    left.leave()
    with pytest.raises(PeerLost, match="worker 0 has left"):
        pending.wait(15.0)
    left.deliver(worker(1), Envelope(Kind.TELL, Ask(v=TEN, n=2)))
    assert answerer.heard()


def test_an_answer_to_one_that_has_asked_nothing_is_a_protocol_error(stage: Stage) -> None:
    def run() -> Generator[Effect, Any, None]:
        yield Reply(1, Said(v=TEN, n=9))

    (node,) = peers(stage, Loop(run))
    with pytest.raises(ProtocolError, match="worker 0 answers worker 1, which has asked nothing"):
        node.advance()


def test_the_final_weights_are_shown_once_there_are_any(stage: Stage) -> None:
    holder, curious = peers(stage, Answerer(nothing), Answerer(nothing))
    peeked = in_background(lambda: curious.read_state(0, FINAL))
    again = in_background(lambda: curious.read_state(0, FINAL))
    holder.published[FINAL] = lambda _: TEN
    assert peeked() is TEN
    assert again() is TEN
    holder.role.w = TEN
    assert curious.read_model(0) == (TEN, 1.0)


def test_who_asks_whether_all_is_taken_is_answered_behind_what_the_loop_has_in_hand(stage: Stage) -> None:
    """A process that ends after the answer would take with it what the thread of the loop has not sent yet."""
    hears = Answerer(nothing)
    leaver, other = peers(stage, hears, Answerer(nothing))
    reached, held = threading.Event(), threading.Event()
    other.place(Asker(Tell(0, Ask(v=TEN, n=7)), WORK), WHOLE)
    tell = other.out.tell

    def rests(*args: Any) -> None:  # the loop has decided what it tells worker 0, and its thread has not sent it
        reached.set()
        assert held.wait(PATIENCE_SECONDS)
        tell(*args)

    other.out.tell = rests  # type: ignore[method-assign]
    advanced = in_background(other.advance)
    assert reached.wait(PATIENCE_SECONDS)
    answered = threading.Event()

    def asks() -> None:
        leaver.await_taken()
        answered.set()

    asked = in_background(asks)
    assert not answered.wait(0.2)
    assert not hears.came
    held.set()
    advanced()
    asked()
    assert [message.n for _, message in hears.came] == [7], "it was sent before the answer"


def test_a_loop_at_work_holds_no_answer_back(stage: Stage) -> None:
    leaver, other = peers(stage, Answerer(nothing), Asker(WORK))
    other.advance()
    leaver.await_taken()
    with pytest.raises(Stopped):
        other.advance()
    leaver.await_taken()
