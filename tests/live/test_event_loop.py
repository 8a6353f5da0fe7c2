"""The thread that moves bytes."""

from __future__ import annotations

import queue
import selectors
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from paceline.live.event_loop import Loop
from tests.live.fakes import PATIENCE_SECONDS, happened, take, tcp_pair


class Watched:
    """A loop, what failed in it, and a place for its callbacks to put things."""

    def __init__(self) -> None:
        self.failures: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        self.said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.loop = Loop("net of a test", self.failures.put)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = tcp_pair()
    with one, other:
        yield one, other


@pytest.fixture
def watched(pair: tuple[socket.socket, socket.socket]) -> Iterator[Watched]:
    # After the pair, so that the loop has ended before the sockets it watches are closed.
    watched = Watched()
    watched.loop.start()
    yield watched
    watched.loop.end(PATIENCE_SECONDS)
    assert watched.failures.empty()


def test_what_another_thread_asks_for_runs_on_the_loop_in_order(watched: Watched) -> None:
    for n in range(100):
        watched.loop.call_soon(lambda n=n: watched.said.put((n, watched.loop.here)))  # type: ignore[misc]
    assert [take(watched.said) for _ in range(100)] == [(n, True) for n in range(100)]
    assert not watched.loop.here


def test_what_was_asked_for_before_the_start_runs_after_it() -> None:
    watched = Watched()
    watched.loop.call_soon(lambda: watched.said.put("early"))
    watched.loop.start()
    assert take(watched.said) == "early"
    watched.loop.end(PATIENCE_SECONDS)


def test_a_callback_may_ask_for_another_without_ringing(watched: Watched) -> None:
    def first() -> None:
        watched.loop.call_soon(lambda: watched.said.put("second"))
        watched.said.put("first")

    watched.loop.call_later(0.0, first)
    assert [take(watched.said), take(watched.said)] == ["first", "second"]


def test_timers_ring_in_the_order_of_their_times(watched: Watched) -> None:
    def ask() -> None:
        for name, seconds in (("last", 0.06), ("first", 0.0), ("middle", 0.03), ("middle, asked later", 0.03)):
            watched.loop.call_later(seconds, lambda name=name: watched.said.put(name))  # type: ignore[misc]

    watched.loop.call_soon(ask)
    assert [take(watched.said) for _ in range(4)] == ["first", "middle", "middle, asked later", "last"]


def test_a_socket_is_told_of_while_it_is_watched_and_no_longer(
    watched: Watched, pair: tuple[socket.socket, socket.socket]
) -> None:
    one, other = pair

    def readable(events: int) -> None:
        assert events == selectors.EVENT_READ
        watched.said.put(one.recv(10))

    watched.loop.call_soon(lambda: watched.loop.watch(one, selectors.EVENT_READ, readable))
    other.sendall(b"a")
    assert take(watched.said) == b"a"
    watched.loop.call_soon(lambda: watched.loop.watch(one, 0, readable))
    watched.loop.call_soon(lambda: watched.loop.watch(one, 0, readable))  # twice does no harm
    watched.loop.call_soon(lambda: watched.said.put("unwatched"))
    assert take(watched.said) == "unwatched"
    other.sendall(b"b")
    watched.loop.call_later(0.02, lambda: watched.said.put("a turn later"))
    assert take(watched.said) == "a turn later"
    assert one.recv(10) == b"b"


def test_watching_again_changes_what_is_waited_for(watched: Watched, pair: tuple[socket.socket, socket.socket]) -> None:
    one, _ = pair

    def ready(events: int) -> None:
        watched.said.put(events)
        watched.loop.watch(one, selectors.EVENT_READ, ready)

    watched.loop.call_soon(lambda: watched.loop.watch(one, selectors.EVENT_READ, ready))
    watched.loop.call_soon(lambda: watched.loop.watch(one, selectors.EVENT_READ | selectors.EVENT_WRITE, ready))
    assert take(watched.said) == selectors.EVENT_WRITE


def test_an_exception_that_escapes_ends_the_loop_and_is_told() -> None:
    watched = Watched()
    watched.loop.start()
    error = RuntimeError("escaped")

    def fail() -> None:
        raise error

    watched.loop.call_soon(fail)
    assert take(watched.failures) is error
    watched.loop.end(PATIENCE_SECONDS)
    watched.loop.call_soon(lambda: watched.said.put("never"))  # to a loop that has ended: no error, no effect
    assert watched.said.empty()


def test_ending_waits_for_what_is_being_done() -> None:
    watched = Watched()
    watched.loop.start()
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        assert happened(go_on)
        watched.said.put("done")

    watched.loop.call_soon(slow)
    assert happened(begun)
    go_on.set()
    watched.loop.end(PATIENCE_SECONDS)
    assert watched.said.get_nowait() == "done"
    watched.loop.end(PATIENCE_SECONDS)


def test_a_loop_that_was_never_started_leaves_no_socket_open() -> None:
    loop = Watched().loop
    assert loop._bell.fileno() >= 0
    loop.end(PATIENCE_SECONDS)
    assert loop._bell.fileno() == loop._ear.fileno() == -1
    with pytest.raises(ValueError, match="closed"):
        loop._selector.select(0)
