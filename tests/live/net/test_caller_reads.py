"""A thread that waits for an answer reads it itself, in place of the loop's thread."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from paceline.live.net.caller_reads import CallerReads
from paceline.live.protocol.wakeable_event import WakeableEvent
from tests.launch.process_tree import within
from tests.live.fakes import PATIENCE_SECONDS, happened, in_background, take, tcp_pair
from tests.live.net.ends import End, push, total


class Waiter:
    """Waits at one end of a connection for the next message; notes on which threads messages came."""

    def __init__(self, end: End) -> None:
        self.end, self.reads = end, CallerReads(end.loop)
        self.event = WakeableEvent()
        self.threads: list[str] = []
        end.on_arrival = self.arrived

    def arrived(self) -> None:
        self.threads.append(threading.current_thread().name)
        self.event.set()

    def wait(self, timeout_s: float = PATIENCE_SECONDS) -> bool:
        return self.reads.wait(self.event, [self.end.connection], timeout_s)

    def waits(self) -> None:
        """Returns when a thread has taken the connection over."""
        assert within(PATIENCE_SECONDS, lambda: self.end.connection._reader is not None)


def test_the_answer_comes_on_the_thread_that_waits_and_later_messages_on_the_loop(ends: tuple[End, End]) -> None:
    one, other = ends
    waiter = Waiter(one)
    answer = in_background(waiter.wait)
    waiter.waits()
    other.connection.send(total(1))
    assert answer()
    assert take(one.came).message.samples == 1
    other.connection.send(total(2))
    assert take(one.came).message.samples == 2
    first, second = waiter.threads
    assert second == "net of an end" != first


def test_an_event_that_another_thread_sets_ends_the_wait(ends: tuple[End, End]) -> None:
    waiter = Waiter(ends[0])
    answer = in_background(waiter.wait)
    waiter.waits()
    waiter.event.set()
    assert answer()
    assert waiter.wait(), "it is set already"


def test_a_wait_that_takes_too_long_gives_the_connection_back(ends: tuple[End, End]) -> None:
    waiter = Waiter(ends[0])
    assert not waiter.wait(0.01)
    ends[1].connection.send(total(1))
    take(ends[0].came)
    assert waiter.threads == ["net of an end"]
    assert waiter.event.wakers == []


def test_what_is_left_of_a_large_message_leaves_while_its_sender_waits(ends: tuple[End, End]) -> None:
    one, other = ends
    waiter = Waiter(one)
    big = np.arange(8 << 20, dtype=np.float32)

    def answers() -> None:
        waiter.waits()  # else the loop could read the answer before this thread has begun to wait
        other.connection.send(total(7))

    other.on_arrival = answers
    one.connection.send(push(1, big))  # more than the kernel takes at once
    assert waiter.wait()
    assert np.array_equal(take(other.came).message.g, big)
    assert waiter.threads == [threading.current_thread().name]


def test_a_second_thread_leaves_the_connection_to_the_first(ends: tuple[End, End]) -> None:
    one, other = ends
    waiter = Waiter(one)
    first = in_background(waiter.wait)
    waiter.waits()
    second = in_background(waiter.wait)
    other.connection.send(total(1))
    assert first()
    assert second()


def test_a_connection_that_is_closed_meanwhile_does_not_end_the_wait_for_others(ends: tuple[End, End]) -> None:
    one, _ = ends
    waiter = Waiter(one)
    answer = in_background(waiter.wait)
    waiter.waits()
    one.on_loop(lambda: one.connection.close("dropped"))
    assert take(one.closings) == "dropped"
    waiter.event.set()
    assert answer()


def test_the_end_of_the_stream_is_heard_on_the_thread_that_waits(ends: tuple[End, End]) -> None:
    one, other = ends
    waiter = Waiter(one)
    answer = in_background(waiter.wait)
    waiter.waits()
    other.on_loop(lambda: other.connection.close("leaves"))
    assert take(one.closings) == "the other side closed the connection"
    assert one.closed_by == ["in background"]
    waiter.event.set()  # which is what a transport does that hears of it
    assert answer()


def test_what_a_handler_raises_ends_the_loop_as_on_its_own_thread() -> None:
    one, other = map(End, tcp_pair())
    waiter = Waiter(one)

    def arrived() -> None:
        raise LookupError("in the handler")

    one.on_arrival = arrived
    answer = in_background(waiter.wait)
    waiter.waits()
    other.connection.send(total(1))
    assert isinstance(take(one.failures), LookupError)
    waiter.event.set()
    assert answer()
    one.close()
    other.close()


def test_an_interrupt_in_the_middle_of_a_message_closes_its_connection(ends: tuple[End, End]) -> None:
    one, other = ends
    waiter = Waiter(one)

    def arrived() -> None:
        raise KeyboardInterrupt

    one.on_arrival = arrived
    answer = in_background(waiter.wait)
    waiter.waits()
    other.connection.send(total(1))
    with pytest.raises(KeyboardInterrupt):
        answer()
    assert take(one.closings) == "its reader was interrupted"
    ready = threading.Event()
    one.loop.call_soon(ready.set)
    assert happened(ready), "the loop goes on"
