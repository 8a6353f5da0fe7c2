"""Large bodies over several streams: order, integrity, who carries how much, and what is refused."""

from __future__ import annotations

import contextlib
import math
import select
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from paceline.core.coordination.control_messages import Total
from paceline.core.errors import ProtocolError
from paceline.core.paramserver.gated_server import Push
from paceline.live.net.send_queue import Outgoing
from paceline.live.net.striping import HEAD, LANES_AUTO_MAX, LANES_MAX, PIECE_BYTES, RTT_AT, Striping, enough_for
from paceline.live.protocol.frames import STRIPED
from paceline.live.protocol.transport import Kind
from tests.live.fakes import happened, in_background, take, tcp_pair
from tests.live.net.ends import End, push, total
from tests.live.protocol.test_frames import header, prefix

BIG = 1 << 20  # elements: 4 MiB, 16 pieces


def lane_between(one: End, other: End, through: Callable[[socket.socket], socket.socket] | None = None) -> None:
    """One more stream, which `one` has called; `through` puts something between."""
    a, b = tcp_pair()
    if through:
        a = through(a)
    one.on_loop(lambda: one.connection.add_lane(a, called=False))
    other.on_loop(lambda: other.connection.add_lane(b, called=True))


def wait_until_ready(end: End) -> None:
    while not all(received for _, received in end.connection.lanes):
        end.on_loop(lambda: None)


@pytest.fixture
def ends() -> Iterator[tuple[End, End]]:
    """Two ends of a connection with three lanes."""
    one, other = map(End, tcp_pair())
    for _ in range(3):
        lane_between(one, other)
    wait_until_ready(one)
    yield one, other
    one.close()
    other.close()
    assert one.failures.empty()
    assert other.failures.empty()


def numbers(n: int, length: int = BIG) -> Any:
    return np.arange(n, n + length, dtype=np.float32)


def test_bodies_arrive_whole_and_in_order_both_ways(ends: tuple[End, End]) -> None:
    for end in ends:
        for n in range(6):
            end.connection.send(push(n, numbers(n)))
    for end in ends:
        for n in range(6):
            message = take(end.came).message
            assert message.clock == n
            assert np.array_equal(message.g, numbers(n))


@pytest.mark.parametrize("number", [2**32 - 1, 2**63])
def test_frames_are_numbered_in_64_bits(ends: tuple[End, End], number: int) -> None:
    """At 10 striped frames a second 32 bits are used up after 13 years; at 10,000 after five days."""
    one, other = ends
    for end in ends:
        end.connection._lanes._sent = end.connection._lanes._expected = number
    for n in range(3):
        one.connection.send(push(n, numbers(n)))
        message = take(other.came).message
        assert np.array_equal(message.g, numbers(n))
    assert one.connection._lanes._sent == other.connection._lanes._expected == number + 3


def test_large_bodies_go_over_the_lanes_only_and_small_ones_over_none(ends: tuple[End, End]) -> None:
    one, other = ends
    before = sum(sent for sent, _ in one.connection.lanes)
    one.connection.send(push(1))
    take(other.came)
    assert sum(sent for sent, _ in one.connection.lanes) == before
    one.connection.send(push(2, numbers(2)))
    take(other.came)
    assert happened(one.connection.idle)  # what has arrived may not have been counted yet
    sent = [sent for sent, _ in one.connection.lanes]
    assert sum(sent) - before == 4 * BIG + HEAD.size * (4 * BIG // PIECE_BYTES)
    assert sum(received for _, received in other.connection.lanes) == sum(sent)


def test_a_small_message_waits_for_the_large_one_before_it_and_control_does_not(ends: tuple[End, End]) -> None:
    one, other = ends
    all_sent = threading.Event()
    other.loop.call_soon(lambda: happened(all_sent) and None)  # reads nothing till then
    for n in range(0, 20, 2):
        one.connection.send(push(n, numbers(n)))
        one.connection.send(push(n + 1))
    one.connection.send(total(1))
    all_sent.set()
    came = [take(other.came).message for _ in range(21)]
    assert [m.clock for m in came if isinstance(m, Push)] == list(range(20))
    assert came.index(Total(samples=1)) < 10


def test_a_vector_that_does_not_divide_into_pieces_passes(ends: tuple[End, End]) -> None:
    one, other = ends
    for length in (BIG + 1, BIG - 1, 3 * PIECE_BYTES // 4 + 7):
        one.connection.send(push(1, numbers(1, length)))
        assert np.array_equal(take(other.came).message.g, numbers(1, length))


def test_there_is_room_for_two_bodies_at_a_time(ends: tuple[End, End]) -> None:
    one, other = ends
    other.on_arrival = lambda: open_bodies.append(len(other.rooms) - len(open_bodies))
    open_bodies: list[int] = []
    for n in range(10):
        one.connection.send(push(n, numbers(n)))
    for _ in range(10):
        take(other.came)
    assert len(open_bodies) == 10
    assert set(open_bodies) <= {1, 2}


def test_sent_at_is_when_the_last_piece_left(ends: tuple[End, End]) -> None:
    one, other = ends
    envelope = push(1, numbers(1))
    one.connection.send(envelope)
    take(other.came)
    assert happened(one.connection.idle)
    assert envelope.sent_at > 0


class Relay:
    """Something between the two ends of a lane that passes on what comes, as far as it is `allowed`."""

    def __init__(self, sock: socket.socket) -> None:
        self.near = sock
        self.far, self.end = tcp_pair()
        for each in (self.near, self.far, self.end):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        self.near.setblocking(False)
        self.far.setblocking(False)
        self.held: dict[socket.socket, bytes] = {}  # has come, and waits until the other side takes it
        self.passed = 0

    def turn(self, allowed: float) -> None:
        for source, sink in ((self.near, self.far), (self.far, self.near)):
            if self.passed > allowed:
                return
            with contextlib.suppress(BlockingIOError):
                held = self.held.get(sink) or source.recv(16 * 1024)
                self.held[sink] = held
                sent = sink.send(held)
                self.held[sink] = held[sent:]
                self.passed += sent

    def close(self) -> None:
        self.near.close()
        self.far.close()


def test_a_lane_that_is_slower_carries_less() -> None:
    one, other = map(End, tcp_pair())
    relays: list[Relay] = []

    def through(sock: socket.socket) -> socket.socket:
        relays.append(Relay(sock))
        return relays[-1].end

    lane_between(one, other, through)
    lane_between(one, other, through)
    fast, slow = relays
    over = threading.Event()
    total_bytes = 8 * 4 * BIG

    def relay() -> None:
        while not over.is_set():
            fast.turn(allowed=math.inf)
            at_the_end = fast.passed + slow.passed > total_bytes - (1 << 20)
            slow.turn(allowed=math.inf if at_the_end else (1 << 19) + fast.passed / 4)

    finished = in_background(relay)
    wait_until_ready(one)
    for n in range(8):
        one.connection.send(push(n, numbers(n)))
    for n in range(8):
        assert np.array_equal(take(other.came).message.g, numbers(n))
    over.set()
    finished()
    assert happened(one.connection.idle)  # what has arrived may not have been counted yet
    (by_fast, _), (by_slow, _) = one.connection.lanes
    assert by_fast + by_slow > total_bytes
    assert by_fast > 2 * by_slow
    for each in (one, other, *relays):
        each.close()


class Now:
    """A loop that does at once what it is asked for, and watches nothing."""

    def call_soon(self, act: Callable[[], None]) -> None:
        act()

    def unwatch(self, _sock: object) -> None:
        pass

    def watch(self, *_: object) -> None:
        pass


def test_that_a_frame_is_taken_is_told_once_so_that_the_next_keeps_its_turn() -> None:
    near, far = tcp_pair()
    with_logging: list[str] = []
    lanes = Striping(
        Now(),  # type: ignore[arg-type]
        taken=lambda: with_logging.append("taken"),
        left=lambda: with_logging.append("left"),
        closed=lambda why, cause: with_logging.append(why),
    )
    lanes.add(near, called=False)
    far.sendall(HEAD.pack(0, 0, 0))
    assert select.select([near], [], [], 10)[0]
    lanes._ready(lanes._lanes[0], selectors.EVENT_READ)
    for _ in range(2):
        lanes.send(Outgoing(push(0, numbers(0)), [memoryview(b"header")], [memoryview(bytes(100))]))
    assert with_logging == ["taken", "left"] * 2
    near.close()
    far.close()


HOSTILE_PIECES = {
    "beyond the end of its frame": (0, 4 * BIG - 4, 8),
    "far beyond it": (0, 2**40, 8),
    "longer than the frame": (0, 0, 4 * BIG + 1),
}


@pytest.mark.parametrize("which", HOSTILE_PIECES)
def test_a_piece_that_does_not_fit_closes_the_connection(which: str) -> None:
    (sock, end), (lane, far) = raw_end(), tcp_pair()
    end.on_loop(lambda: end.connection.add_lane(far, called=True))
    sock.sendall(striped_push(BIG))
    lane.sendall(HEAD.pack(*HOSTILE_PIECES[which]))
    assert take(end.closings) == "a piece is not part of its frame"
    close(end, sock, lane)


def test_bytes_that_are_sent_twice_close_the_connection() -> None:
    (sock, end), (lane, far) = raw_end(), tcp_pair()
    end.on_loop(lambda: end.connection.add_lane(far, called=True))
    sock.sendall(striped_push(1000))
    lane.sendall((HEAD.pack(0, 0, 3000) + bytes(3000)) * 2)
    assert take(end.closings) == "a piece is not part of its frame"
    close(end, sock, lane)


def test_a_piece_of_a_frame_that_is_complete_closes_the_connection() -> None:
    (sock, end), (lane, far) = raw_end(), tcp_pair()
    end.on_loop(lambda: end.connection.add_lane(far, called=True))
    sock.sendall(striped_push(2))
    lane.sendall(HEAD.pack(0, 0, 8) + bytes(8))
    assert take(end.came).message.g.tolist() == [0, 0]
    lane.sendall(HEAD.pack(0, 0, 8) + bytes(8))
    assert take(end.closings) == "a piece came for a frame that is complete"
    close(end, sock, lane)


def test_a_piece_may_come_before_the_header_of_its_frame() -> None:
    (sock, end), (lane, far) = raw_end(), tcp_pair()
    end.on_loop(lambda: end.connection.add_lane(far, called=True))
    lane.sendall(HEAD.pack(0, 4, 4) + b"\0\0\x80\x3f")
    end.on_loop(lambda: None)
    sock.sendall(striped_push(2))
    lane.sendall(HEAD.pack(0, 0, 4) + bytes(4))
    assert take(end.came).message.g.tolist() == [0, 1]
    close(end, sock, lane)


def test_a_striped_frame_without_a_body_closes_the_connection() -> None:
    sock, end = raw_end()
    sock.sendall(striped_push(0))
    assert take(end.closings) == "a striped frame has no body, or no lanes"
    close(end, sock)


def test_a_lane_that_breaks_takes_the_connection_with_it() -> None:
    (sock, end), (lane, far) = raw_end(), tcp_pair()
    end.on_loop(lambda: end.connection.add_lane(far, called=True))
    lane.close()
    assert take(end.closings)
    close(end, sock)


def test_there_are_not_more_lanes_than_the_limit() -> None:
    sock, end = raw_end()
    lanes = [tcp_pair() for _ in range(LANES_MAX + 1)]
    for _, far in lanes[:-1]:
        end.on_loop(lambda far=far: end.connection.add_lane(far, called=True))  # type: ignore[misc]
    with pytest.raises(ProtocolError, match="more than 16 streams"):
        end.connection.add_lane(lanes[-1][1], called=True)
    close(end, sock, *(lane for lane, _ in lanes))


def test_one_stream_is_enough_for_a_short_round_trip() -> None:
    one, other = tcp_pair()
    with one, other:
        assert enough_for(one) == 1


def test_a_longer_round_trip_or_a_faster_link_asks_for_more_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    class Far(socket.socket):
        def getsockopt(self, *_args: Any) -> Any:
            return bytes(RTT_AT) + struct.pack("=I", 20_000)

    with Far() as far:
        few, more, most = (enough_for(far, link_bytes_per_second=speed) for speed in (1e6, 0.5e9, 1e12))
    assert few == 1
    assert 1 < more <= most == LANES_AUTO_MAX


def raw_end() -> tuple[socket.socket, End]:
    sock, other = tcp_pair()
    return sock, End(other)


def striped_push(length: int) -> bytes:
    head = header("clocked.Push", [length], [1, 1, [], []])
    return prefix(kind=Kind.CALL | STRIPED, header=len(head), body=4 * length) + head


def close(end: End, *socks: socket.socket) -> None:
    end.close()
    for sock in socks:
        sock.close()
    assert end.failures.empty()
