"""One socket: frames in, frames out."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from paceline.codec import Encoded
from paceline.core.errors import PeerLost, ProtocolError
from paceline.core.paramserver.gated_server import Push, Weights
from paceline.live.event_loop import Loop
from paceline.live.net.connection import Connection
from paceline.live.protocol.control_messages import Failed, Total
from paceline.live.protocol.pending_reply import rooms_for
from paceline.live.protocol.transport import Envelope, Kind, LossCause
from tests.live.fakes import PATIENCE_SECONDS, NumpyMemory, happened, take, tcp_pair, vector
from tests.live.protocol.test_frames import HOSTILE, bytes_of, prefix

BODY_BYTES_MAX = 1 << 28
BIG = 2 << 20  # elements: 8 MB, more than any socket buffer holds


class End:
    """One end: a connection on a loop of its own, and what it was told."""

    def __init__(self, sock: socket.socket) -> None:
        self.failures: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        self.came: queue.SimpleQueue[Envelope] = queue.SimpleQueue()
        self.closings: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.causes: queue.SimpleQueue[LossCause] = queue.SimpleQueue()
        self.rooms: list[list[Any]] = []
        self.on_arrival: Callable[[], None] = lambda: None
        self.memory = NumpyMemory()
        self.loop = Loop("net of an end", self.failures.put)
        self.connection = Connection(
            sock,
            self.loop,
            self.memory,
            arrived=self.arrived,
            room=self.room,
            closed=self.closed,
            body_bytes_max=BODY_BYTES_MAX,
        )
        self.connection.begin()
        self.loop.start()

    def closed(self, why: str, cause: LossCause) -> None:
        self.closings.put(why)
        self.causes.put(cause)

    def arrived(self, envelope: Envelope) -> None:
        if envelope.message == Total(samples=-1):
            raise ProtocolError("not expected here")
        self.on_arrival()
        self.came.put(envelope)

    def room(self, kind: Kind, id: int, cls: type, lengths: Sequence[int], shared: Sequence[Any] = ()) -> list[Any]:
        self.rooms.append(rooms_for(lengths, shared, self.memory))
        return self.rooms[-1]

    def on_loop(self, act: Callable[[], Any]) -> None:
        done = threading.Event()
        self.loop.call_soon(lambda: (act(), done.set()))  # type: ignore[arg-type]
        assert happened(done)

    def close(self) -> None:
        self.loop.call_soon(lambda: self.connection.close("end of the test"))
        self.loop.end()
        self.connection.close("end of the test")


@pytest.fixture
def ends() -> Iterator[tuple[End, End]]:
    one, other = map(End, tcp_pair())
    yield one, other
    one.close()
    other.close()
    assert one.failures.empty()
    assert other.failures.empty()


@pytest.fixture
def raw() -> Iterator[tuple[socket.socket, End]]:
    """A bare socket, and the end it speaks to."""
    sock, other = tcp_pair()
    end = End(other)
    with sock:
        yield sock, end
    end.close()
    assert end.failures.empty()


def assert_happened(event: threading.Event) -> None:
    assert happened(event)


def push(clock: int, g: Any = None) -> Envelope:
    return Envelope(Kind.CALL, Push(g=vector(1, 2, 3) if g is None else g, clock=clock, samples=2), clock)


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


def total(samples: int) -> Envelope:
    return Envelope(Kind.CONTROL, Total(samples=samples))


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


def test_a_control_message_does_not_wait_behind_large_ones(ends: tuple[End, End]) -> None:
    one, other = ends
    part = np.zeros(1 << 20, np.float32)  # 200 MB in slices of 4 MB
    all_sent = threading.Event()
    other.loop.call_soon(lambda: assert_happened(all_sent))  # reads nothing till then
    for n in range(50):
        one.connection.send(push(n, part))
    for n in range(3):
        one.connection.send(total(n))
    all_sent.set()
    came = [take(other.came).message for _ in range(53)]
    assert [m.clock for m in came if isinstance(m, Push)] == list(range(50))
    assert [m.samples for m in came if isinstance(m, Total)] == [0, 1, 2]
    assert isinstance(came[-1], Push), "the last slice came before a control message"
    assert came.index(Total(samples=2)) < 25


def test_nothing_passes_a_small_message_that_has_begun_to_leave() -> None:
    one, other = socket.socketpair()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the least there is: less than the message
    end, failure = End(one), Failed(cause="x" * 60_000, details="")
    end.connection.send(Envelope(Kind.TELL, failure))
    end.connection.send(total(1))
    expected = bytes_of(Envelope(Kind.TELL, failure)) + bytes_of(total(1))
    got, counts = bytearray(), []
    with other:
        other.settimeout(PATIENCE_SECONDS)
        while len(got) < len(expected):
            counts.append(len(chunk := other.recv(1 << 20)))
            got += chunk
    assert len(counts) > 1, "all of it left at once"
    assert got == expected
    assert happened(end.connection.idle)  # what has been read may not have been counted yet
    assert end.connection.bytes_sent == len(expected)
    end.close()
    assert end.failures.empty()


def test_a_message_of_a_scheme_waits_for_those_before_it(ends: tuple[End, End]) -> None:
    one, other = ends
    for n in range(20):
        one.connection.send(push(n, np.zeros(BIG if n % 4 == 0 else 1, np.float32)))
    assert [take(other.came).message.clock for _ in range(20)] == list(range(20))


def test_sending_never_waits_for_the_receiver(raw: tuple[socket.socket, End]) -> None:
    sock, end = raw
    frames = [push(n, np.full(BIG, n, np.float32)) for n in range(2)]
    for frame in frames:
        end.connection.send(frame)  # nobody reads yet
    assert not end.connection.idle.is_set()
    assert frames[1].sent_at == 0
    expected = b"".join(map(bytes_of, frames))
    got = bytearray()
    while len(got) < len(expected):
        got += sock.recv(1 << 20)
    assert got == expected
    assert happened(end.connection.idle)
    assert 0 < frames[0].sent_at <= frames[1].sent_at


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


def test_both_ends_count_the_bytes_that_went_over(ends: tuple[End, End]) -> None:
    one, other = ends
    frames = [push(1), total(2), push(3, np.zeros(100_000, np.float32)), total(4)]
    for frame in frames:
        one.connection.send(frame)
    for _ in frames:
        take(other.came)
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


def test_frames_from_many_threads_do_not_mix(ends: tuple[End, End]) -> None:
    one, other = ends

    def send(thread: int) -> None:
        for n in range(20):
            one.connection.send(push(1000 * thread + n, np.full(30_000, thread, np.float32)))

    threads = [threading.Thread(target=send, args=(n,), daemon=True) for n in range(3)]
    for thread in threads:
        thread.start()
    clocks: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for _ in range(60):
        message = take(other.came).message
        thread_of = message.clock // 1000
        assert (message.g == thread_of).all()
        clocks[thread_of].append(message.clock % 1000)
    assert all(clock == list(range(20)) for clock in clocks.values())
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
