"""Vectors by reference between two ends on one host: both ways, given back, and nobody let near what is not shared."""

from __future__ import annotations

import fcntl
import gc
import mmap
import os
import queue
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from paceline.core.errors import ProtocolError
from paceline.core.paramserver.gated_server import Push
from paceline.live.event_loop import Loop
from paceline.live.net import zero_copy as sharing
from paceline.live.net.connection import Connection
from paceline.live.net.zero_copy import LENT_BYTES_MIN, BuffersReleased, Closed, Opened
from paceline.live.protocol import frames
from paceline.live.protocol.pending_reply import rooms_for
from paceline.live.protocol.transport import Envelope, Kind
from paceline.live.same_host import unix_socket
from paceline.live.same_host.shared_memory import Segments
from paceline.live.same_host.unix_socket import UnixStream
from tests.live.fakes import PATIENCE_SECONDS, NumpyMemory, take

pytestmark = pytest.mark.skipif(not Segments.available(), reason="memory is shared on Linux only")

LENGTH = 100_000  # elements


class End:
    """One end of a connection, with segments of its own, as another process has."""

    def __init__(self, sock: socket.socket, admitted: bool = True) -> None:
        self.came: queue.SimpleQueue[Envelope] = queue.SimpleQueue()
        self.closings: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.failures: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        self.memory, self.segments = NumpyMemory(), Segments()
        self.loop = Loop("net of an end", self.failures.put)
        self.connection = Connection(
            UnixStream(sock),
            self.loop,
            self.memory,
            arrived=self.came.put,
            room=self.room,
            closed=lambda why, cause: self.closings.put(why),
            segments=self.segments,
        )
        if admitted:
            self.connection.admit(1 << 30)
        self.connection.begin()
        self.loop.start()

    def room(self, kind: Kind, id: int, cls: type, lengths: Sequence[int], shared: Sequence[Any]) -> list[Any]:
        return rooms_for(lengths, shared, self.memory)

    def vector(self, number: float, length: int = LENGTH) -> Any:
        """In memory that can be lent."""
        room = self.segments.make(4 * length)
        assert room is not None
        v = np.frombuffer(room, np.float32)
        v[:] = number
        return v

    def send(self, *vectors: Any) -> None:
        for v in vectors:
            self.connection.send(Envelope(Kind.TELL, Push(g=v, clock=1, samples=1)))

    def next(self) -> Any:
        return take(self.came).message.g

    @property
    def lent(self) -> int:
        sharing = self.connection._sharing
        assert sharing is not None
        return len(sharing._lent)

    def close(self) -> None:
        self.loop.call_soon(lambda: self.connection.close("end of the test"))
        self.loop.end(PATIENCE_SECONDS)
        self.connection.close("end of the test")
        assert self.failures.empty()


@pytest.fixture
def ends() -> Iterator[tuple[End, End]]:
    one, other = map(End, socket.socketpair())
    yield one, other
    one.close()
    other.close()


def until(condition: Callable[[], bool]) -> None:
    """Both loops go on meanwhile: loans that no frame takes along come back by themselves."""
    turn = queue.SimpleQueue[None]()
    for _ in range(round(PATIENCE_SECONDS / 0.02)):
        if condition():
            return
        with pytest.raises(queue.Empty):
            turn.get(timeout=0.02)
    raise AssertionError("it did not come to that")


def test_vectors_pass_both_ways_without_travelling(ends: tuple[End, End]) -> None:
    for one, other in (ends, reversed(ends)):
        v = one.vector(7)
        one.send(v)
        got = other.next()
        assert got.tolist() == v.tolist()
        assert other.connection.bytes_received < 1000
        v[0] = 8  # nobody does that, but it shows that this is the same memory
        assert got[0] == 8
        assert one.connection.bytes_shared[0] == other.connection.bytes_shared[1] == v.nbytes


def test_what_is_read_by_reference_cannot_be_written(ends: tuple[End, End]) -> None:
    one, other = ends
    one.send(one.vector(1))
    with pytest.raises(ValueError, match="read-only"):
        other.next()[0] = 2


@pytest.mark.parametrize("offset", [0, 1, 12345])
def test_a_slice_is_found_where_it_lies(ends: tuple[End, End], offset: int) -> None:
    one, other = ends
    v = one.vector(0)
    v[:] = np.arange(LENGTH)
    one.send(v[offset : offset + 50_000])
    assert other.next().tolist() == list(range(offset, offset + 50_000))
    assert other.connection.bytes_shared[1] == 200_000


def test_short_vectors_and_those_of_other_memory_travel(ends: tuple[End, End]) -> None:
    one, other = ends
    short = one.vector(1, LENT_BYTES_MIN // 4 - 1)
    private = np.full(LENGTH, 2, np.float32)
    one.send(short, private)
    assert [other.next().tolist(), other.next().tolist()] == [short.tolist(), private.tolist()]
    assert one.connection.bytes_shared == (0, 0)
    assert one.lent == 0


def test_one_that_was_borrowed_can_be_sent_on(ends: tuple[End, End]) -> None:
    one, other = ends
    one.send(one.vector(3))
    other.send(other.next())
    assert one.next().tolist() == [3.0] * LENGTH


def test_a_loan_lasts_as_long_as_anything_of_it_is_in_use(ends: tuple[End, End]) -> None:
    one, other = ends
    one.send(one.vector(1), one.vector(2))
    first, second = other.next(), other.next()
    part = first[10:20]
    del first
    gc.collect()
    other.send(np.zeros(1, np.float32))  # would take loans along that are over
    one.next()
    assert one.lent == 2
    del part
    other.send(np.zeros(1, np.float32))
    one.next()
    assert one.lent == 1
    assert second[0] == 2


def test_loans_come_back_by_themselves_when_no_frame_goes_that_way(ends: tuple[End, End]) -> None:
    one, other = ends
    one.send(one.vector(1))
    got = other.next()
    assert one.lent == 1
    del got
    until(lambda: one.lent == 0)


def test_a_long_exchange_makes_no_new_memory(ends: tuple[End, End]) -> None:
    one, other = ends
    ours, theirs = ([end.vector(n) for n in range(2)] for end in ends)
    for n in range(200):
        one.send(ours[n % 2])
        assert other.next()[0] == n % 2
        other.send(theirs[n % 2])
        assert one.next()[0] == n % 2
        assert max(one.lent, other.lent) <= 2
    maps = [len(end.connection._sharing._maps) for end in ends if end.connection._sharing]
    assert maps == [1, 1]


def test_memory_that_is_no_more_is_unmapped_on_the_other_side(ends: tuple[End, End]) -> None:
    one, other = ends
    kept = []
    for n in range(20):  # each in a file of its own
        one.send(one.vector(n, 12 << 20))
        kept.append(other.next())
        assert kept[-1][-1] == n
        if n % 2:
            kept.clear()
            other.send(np.zeros(1, np.float32))
            one.next()
    theirs = other.connection._sharing
    assert theirs is not None
    assert len(theirs._maps) <= 4
    assert len(one.segments._segments) <= 4


def test_when_the_connection_ends_nothing_is_lent_any_more_and_what_is_read_stays(ends: tuple[End, End]) -> None:
    one, other = ends
    one.send(one.vector(5))
    got = other.next()
    other.loop.call_soon(lambda: other.connection.close("done"))
    take(one.closings)
    assert one.lent == 0
    assert set(got.tolist()) == {5.0}, "the lender has given it up, and its pages are there for whoever reads them"


def test_nothing_is_left_when_the_other_process_is_killed() -> None:
    """What it lent can still be read; what it borrowed is free."""
    child = """
import sys, os, signal, socket, queue
from tests.live.net.test_zero_copy import End
end = End(socket.socket(fileno=int(sys.argv[1])))
end.send(end.vector(4))
borrowed = end.next()
end.send(end.memory.empty(1))
os.kill(os.getpid(), signal.SIGKILL)
"""
    ours, theirs = socket.socketpair()
    end = End(ours)
    process = subprocess.Popen([sys.executable, "-c", child, str(theirs.fileno())], pass_fds=[theirs.fileno()])
    theirs.close()
    end.send(end.vector(1))
    assert process.wait(PATIENCE_SECONDS) == -9
    lent_to_us = end.next()
    take(end.closings)
    assert lent_to_us[-1] == 4
    assert end.lent == 0
    end.close()


def open_descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_closing_leaves_no_descriptor() -> None:
    before = open_descriptors()
    one, other = map(End, socket.socketpair())
    one.send(one.vector(1))
    other.next()
    one.close()
    other.close()
    del one, other
    assert open_descriptors() == before


# ---- the hostile ---------------------------------------------------------------------------------------------------
class Rogue:
    """Speaks the protocol by hand."""

    def __init__(self, admitted: bool = True) -> None:
        ours, theirs = socket.socketpair()
        self.sock, self.end = UnixStream(ours), End(theirs, admitted)
        self.sock.settimeout(PATIENCE_SECONDS)

    def say(
        self, message: Any, kind: Kind = Kind.CONTROL, *, place: frames.SharedRef | None = None, over: Any = ()
    ) -> None:
        class Lender:
            def lend(self, v: Any) -> frames.SharedRef | None:
                return place

            def over(self) -> Any:
                return over

        buffers = frames.encode(Envelope(kind, message), NumpyMemory(), Lender())
        self.sock.sendmsg(buffers)

    def share(self, nbytes: int, *, seals: bool = True, claimed: int | None = None, number: int = 1) -> None:
        file = os.memfd_create("rogue", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(file, nbytes)
        if seals:
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self.sock.pass_on(file)
        self.say(Opened(number=number, nbytes=nbytes if claimed is None else claimed))
        os.close(file)

    def push(self, place: frames.SharedRef, length: int) -> None:
        self.say(Push(g=np.zeros(length, np.float32), clock=1, samples=1), Kind.CALL, place=place)

    def was_refused(self, match: str) -> bool:
        why = take(self.end.closings)
        assert match in why, why
        assert self.end.came.empty()
        return True


@pytest.fixture
def rogue() -> Iterator[Callable[..., Rogue]]:
    made: list[Rogue] = []
    before = open_descriptors()

    def make(**more: Any) -> Rogue:
        made.append(Rogue(**more))
        return made[-1]

    yield make
    for one in made:
        one.sock.close()
        one.end.close()
    del one
    made.clear()
    assert open_descriptors() <= before


PAGES = 4 * mmap.PAGESIZE
OUTSIDE = {
    "beyond the end": ((1, 0, 1), PAGES // 4 + 1),
    "partly beyond the end": ((1, PAGES - 4, 1), 2),
    "before the beginning": ((1, -4, 1), 1),
    "between two elements": ((1, 2, 1), 1),
    "far away": ((1, 2**62, 1), 1),
    "in a segment that was not shared": ((2, 0, 1), 1),
}


@pytest.mark.parametrize("where", OUTSIDE)
def test_a_reference_to_what_is_not_shared_is_refused(where: str, rogue: Callable[..., Rogue]) -> None:
    one = rogue()
    one.share(PAGES)
    one.push(*OUTSIDE[where])
    assert one.was_refused("are not in the memory it shares")


def test_the_last_element_of_a_segment_may_be_referred_to(rogue: Callable[..., Rogue]) -> None:
    one = rogue()
    one.share(PAGES)
    one.push((1, PAGES - 4, 1), 1)
    assert one.end.next().tolist() == [0.0]


def test_memory_that_could_shrink_under_the_reader_is_refused(rogue: Callable[..., Rogue]) -> None:
    one = rogue()
    one.share(PAGES, seals=False)
    assert one.was_refused("or may become so")


@pytest.mark.parametrize("claimed", [PAGES + 1, 0, -1, 2**62])
def test_memory_that_is_not_as_long_as_it_is_said_to_be_is_refused(claimed: int, rogue: Callable[..., Rogue]) -> None:
    one = rogue()
    one.share(PAGES, claimed=claimed)
    assert one.was_refused("shares")


def test_a_segment_cannot_be_shared_twice(rogue: Callable[..., Rogue]) -> None:
    one = rogue()
    one.share(PAGES)
    one.share(PAGES)
    assert one.was_refused("twice")


def test_the_number_of_segments_of_one_party_is_bounded(
    monkeypatch: pytest.MonkeyPatch, rogue: Callable[..., Rogue]
) -> None:
    monkeypatch.setattr(sharing, "SEGMENTS_MAX", 3)
    one = rogue()
    for number in range(1, 5):
        one.share(PAGES, number=number)
    assert one.was_refused("more than 3")


def test_their_size_is_bounded(monkeypatch: pytest.MonkeyPatch, rogue: Callable[..., Rogue]) -> None:
    monkeypatch.setattr(sharing, "BORROWED_BYTES_MAX", 2 * PAGES)
    one = rogue()
    for number in range(1, 4):
        one.share(PAGES, number=number)
    assert one.was_refused("more than can be mapped")


def test_a_segment_without_a_descriptor_is_refused(rogue: Callable[..., Rogue]) -> None:
    one = rogue()
    one.say(Opened(number=1, nbytes=PAGES))
    assert one.was_refused("memory that it has not shared")


def test_a_descriptor_that_is_no_memory_is_refused(rogue: Callable[..., Rogue]) -> None:
    one = rogue()
    end, other = os.pipe()
    one.sock.pass_on(end)
    one.say(Opened(number=1, nbytes=PAGES))
    assert one.was_refused("cannot be mapped")
    os.close(end)
    os.close(other)


def test_descriptors_that_nobody_asked_for_are_closed(rogue: Callable[..., Rogue]) -> None:
    one = rogue()
    with open("/dev/null", "rb") as file:
        for _ in range(2):
            for _ in range(unix_socket.UNCLAIMED_MAX):
                one.sock.pass_on(file.fileno())
            one.say(BuffersReleased())
    assert one.was_refused("descriptors that nobody asked for")


@pytest.mark.parametrize("message", [Opened(number=1, nbytes=PAGES), Closed(numbers=(1,)), BuffersReleased()])
def test_a_stranger_shares_nothing(message: Any, rogue: Callable[..., Rogue]) -> None:
    one = rogue(admitted=False)
    one.say(message)
    assert one.was_refused("shares memory before it has said who it is")


def test_a_stranger_passes_on_no_descriptors(rogue: Callable[..., Rogue]) -> None:
    one = rogue(admitted=False)
    with open("/dev/null", "rb") as file:
        one.sock.pass_on(file.fileno())
        one.sock.sendmsg([b"P"])
    assert one.was_refused("passes descriptors before it has said who it is")


@pytest.mark.parametrize("loans", [(1,), (0,), (2**63 - 1,)])
def test_giving_back_what_was_not_lent_is_refused(loans: tuple[int, ...], rogue: Callable[..., Rogue]) -> None:
    one = rogue()
    one.say(BuffersReleased(), over=loans)
    assert one.was_refused("which it does not have")


def test_references_over_tcp_are_refused() -> None:
    class Nowhere:
        def recv_into(self, target: memoryview) -> int:
            target[: len(data)] = data
            return len(data)

    from paceline.live.net.frame_reader import FrameReader

    class Lender:
        def lend(self, v: Any) -> frames.SharedRef | None:
            return 1, 0, 1

        def over(self) -> tuple[int, ...]:
            return ()

    push = Envelope(Kind.CALL, Push(g=np.zeros(1, np.float32), clock=1, samples=1))
    data = b"".join(frames.encode(push, NumpyMemory(), Lender()))
    receiver = FrameReader(NumpyMemory(), lambda *_: [], lambda _: None, 1 << 20)
    sock: Any = Nowhere()
    with pytest.raises(ProtocolError, match="cannot share"):
        receiver.read(sock)
