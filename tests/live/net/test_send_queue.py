"""The order in which messages leave: control messages first, a scheme's in their order."""

from __future__ import annotations

import socket
import threading

import numpy as np

from paceline.core.coordination.control_messages import Failed, Total
from paceline.core.paramserver.gated_server import Push
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.fakes import PATIENCE_SECONDS, happened, take
from tests.live.net.ends import End, push, total
from tests.live.protocol.test_frames import bytes_of

BIG = 2 << 20  # elements: 8 MB, more than any socket buffer holds


def assert_happened(event: threading.Event) -> None:
    assert happened(event)


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
