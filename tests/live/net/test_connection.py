"""One socket: frames in, frames out."""

from __future__ import annotations

import socket

import numpy as np
import pytest

from paceline.codec import Encoded
from paceline.core.coordination.control_messages import Total
from paceline.core.errors import PeerLost
from paceline.live.protocol.transport import Kind
from tests.live.fakes import happened, take
from tests.live.net.ends import End, push, total
from tests.live.protocol.test_frames import bytes_of

BODY_BYTES_MAX = 1 << 28


BIG = 2 << 20  # elements: 8 MB, more than any socket buffer holds


def test_encoded_vectors_arrive_between_others_and_few_bytes_pass(ends: tuple[End, End]) -> None:
    one, other = ends
    data = np.arange(62_500, dtype=np.uint32).view(np.uint8)
    one.connection.send(push(1))
    one.connection.send(push(2, Encoded("2bit", 1_000_000, data, 5, 1)))
    one.connection.send(push(3))
    first, encoded, last = (take(other.came).message for _ in range(3))
    assert first.g.tolist() == last.g.tolist() == [1, 2, 3]
    assert (encoded.g.codec, len(encoded.g), encoded.g.row, encoded.g.base) == ("2bit", 1_000_000, 5, 1)
    assert bytes(encoded.g.data) == data.tobytes()
    assert 250_000 < other.connection.bytes_received < 251_000


def test_frames_come_whole_and_in_order(ends: tuple[End, End]) -> None:
    one, other = ends
    for n in range(300):
        one.connection.send(push(n) if n % 3 else total(n))
    for n in range(300):
        envelope = take(other.came)
        if n % 3:
            assert (envelope.kind, envelope.id, envelope.message.clock) == (Kind.CALL, n, n)
            assert envelope.message.g.tolist() == [1, 2, 3]
        else:
            assert envelope.message == Total(samples=n)


def test_large_vectors_pass_both_ways_at_once(ends: tuple[End, End]) -> None:
    big = [np.full(BIG, n, np.float32) for n in range(3)]
    for end in ends:
        for n, g in enumerate(big):
            end.connection.send(push(n, g))
    for end in ends:
        for g in big:
            assert np.array_equal(take(end.came).message.g, g)
        assert happened(end.connection.idle)


def test_both_ends_count_the_bytes_that_went_over(ends: tuple[End, End]) -> None:
    one, other = ends
    frames = [push(1), total(2), push(3, np.zeros(100_000, np.float32)), total(4)]
    for frame in frames:
        one.connection.send(frame)
    for _ in frames:
        take(other.came)
    assert happened(one.connection.idle), "what the loop has sent is counted a moment later"
    sent = sum(len(bytes_of(frame)) for frame in frames)
    assert (one.connection.bytes_sent, one.connection.bytes_received) == (sent, 0)
    assert (other.connection.bytes_sent, other.connection.bytes_received) == (0, sent)


def test_closing_is_told_once_on_both_sides(ends: tuple[End, End]) -> None:
    one, other = ends
    one.on_loop(lambda: one.connection.close("enough"))
    one.on_loop(lambda: one.connection.close("enough again"))
    assert take(one.closings) == "enough"
    assert take(other.closings) == "the other side closed the connection"
    other.on_loop(lambda: other.connection.close("as well"))
    assert one.closings.empty()
    assert other.closings.empty()


def test_nothing_can_be_sent_over_a_closed_connection(ends: tuple[End, End]) -> None:
    one, _ = ends
    one.on_loop(lambda: one.connection.close("enough"))
    with pytest.raises(PeerLost):
        one.connection.send(total(1))
    assert one.connection.idle.is_set()


def test_a_peer_that_dies_in_the_middle_of_a_frame_closes_the_connection(raw: tuple[socket.socket, End]) -> None:
    sock, end = raw
    sock.sendall(bytes_of(push(1, np.zeros(1000, np.float32)))[:2000])
    sock.close()
    assert take(end.closings) == "the other side closed the connection"
    assert end.came.empty()
