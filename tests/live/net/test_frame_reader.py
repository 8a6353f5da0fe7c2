"""Frames come out whole, however their bytes arrive, and a bad one closes the connection."""

from __future__ import annotations

import socket
from typing import Any

import numpy as np
import pytest

from paceline.core.coordination.control_messages import Failed, Total
from paceline.core.paramserver.gated_server import Weights
from paceline.live.protocol.transport import Envelope, Kind, LossCause
from tests.live.fakes import take, tcp_pair, vector
from tests.live.net.ends import End, push, total
from tests.live.protocol.test_frames import HOSTILE, bytes_of, prefix

BODY_BYTES_MAX = 1 << 28


class Drip(socket.socket):
    """Gives one byte at a time."""

    def recv_into(self, buffer: Any, *rest: Any) -> int:
        return super().recv_into(memoryview(buffer)[:1])


def test_bytes_that_come_one_by_one_make_the_same_frames() -> None:
    sock, other = tcp_pair()
    end = End(Drip(fileno=other.detach()))
    with sock:
        sock.sendall(bytes_of(push(1)) + bytes_of(total(2)) + bytes_of(push(3, vector())))
        assert take(end.came).message.g.tolist() == [1, 2, 3]
        assert take(end.came).message == Total(samples=2)
        assert len(take(end.came).message.g) == 0
        end.close()


def test_several_frames_in_one_read_come_apart(raw: tuple[socket.socket, End]) -> None:
    sock, end = raw
    sock.sendall(b"".join(bytes_of(push(n) if n % 2 else total(n)) for n in range(20)) + bytes_of(push(20))[:40])
    came = [take(end.came) for _ in range(20)]
    assert [e.message.clock if n % 2 else e.message.samples for n, e in enumerate(came)] == list(range(20))
    sock.sendall(bytes_of(push(20))[40:])
    assert take(end.came).message.clock == 20


def test_each_frame_of_one_read_took_its_own_time_to_come(raw: tuple[socket.socket, End]) -> None:
    sock, end = raw
    sock.sendall(bytes_of(total(1)) * 3 + bytes_of(push(2)))
    for _ in range(4):
        assert 0 <= take(end.came).seconds_receiving < 1


def test_a_body_that_begins_in_the_same_read_goes_on_in_the_next(raw: tuple[socket.socket, End]) -> None:
    sock, end = raw
    g = np.arange(5000, dtype=np.float32)
    frame = bytes_of(push(1, g))
    for begin in range(0, len(frame), 777):
        sock.sendall(frame[begin : begin + 777])
    assert np.array_equal(take(end.came).message.g, g)


def test_a_header_longer_than_the_scratch_pad_passes(ends: tuple[End, End]) -> None:
    one, other = ends
    long = Failed(cause="x" * 60_000, details="y" * 100)
    for n in range(3):
        one.connection.send(total(n))
        one.connection.send(Envelope(Kind.CONTROL, long))
        one.connection.send(push(n))
    for n in range(3):
        assert take(other.came).message == Total(samples=n)
        assert take(other.came).message == long
        assert take(other.came).message.g.tolist() == [1, 2, 3]


@pytest.mark.parametrize("length", [1, 100, 50_000])
def test_vectors_are_received_straight_into_the_room_given_for_them(ends: tuple[End, End], length: int) -> None:
    one, other = ends
    w = np.arange(length, dtype=np.float32)
    one.connection.send(Envelope(Kind.REPLY, Weights(w=w, version=1), 5))
    came = take(other.came).message
    assert came.w is other.rooms[0][0]
    assert np.array_equal(came.w, w)
    assert other.memory.made == length


def test_a_vector_without_elements_passes(ends: tuple[End, End]) -> None:
    one, other = ends
    one.connection.send(push(1, vector()))
    one.connection.send(total(2))
    assert len(take(other.came).message.g) == 0
    assert take(other.came).message == Total(samples=2)


def test_a_message_that_the_receiver_refuses_closes_the_connection(ends: tuple[End, End]) -> None:
    one, other = ends
    one.connection.send(total(-1))
    assert take(other.closings) == "not expected here"
    assert take(other.causes) is LossCause.BROKE_PROTOCOL
    assert take(one.closings)
    assert take(one.causes) is LossCause.CLOSED


BAD_PREFIXES = {
    "another protocol": b"GET / HTTP/1.1\r\nHost: example\r\n\r\n",
    "a header of 4 GiB": prefix(header=2**32 - 1),
    "a body of 2**63 bytes": prefix(body=2**63),
    "a body beyond the limit": prefix(body=BODY_BYTES_MAX + 1),
    "an unknown kind": prefix(kind=77),
}


@pytest.mark.parametrize("what", [*BAD_PREFIXES, *HOSTILE])
def test_a_frame_with_anything_wrong_closes_the_connection_before_memory_is_taken(
    what: str, raw: tuple[socket.socket, End]
) -> None:
    sock, end = raw
    if what in HOSTILE:
        header, body_bytes = HOSTILE[what]
        sock.sendall(prefix(header=len(header), body=body_bytes) + header)
    else:
        sock.sendall(BAD_PREFIXES[what])
    assert take(end.closings)
    assert end.rooms == []
    assert end.memory.made == 0
    assert end.came.empty()
