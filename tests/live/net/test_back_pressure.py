"""Memory is bounded, however many send and however much."""

from __future__ import annotations

import contextlib
import queue
import threading
import tracemalloc
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from paceline.core.coordination.party import Party, server, worker
from paceline.core.paramserver.gated_server import Pull, Push
from paceline.live.net.frame_reader import BODIES_MAX
from paceline.live.net.tcp_transport import ANSWERS_MAX, TcpTransport
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.fakes import PATIENCE_SECONDS, NumpyMemory, Recorder, take

TOKEN = "the token of this run"
SENDERS = 6
SLICES = 12
SLICE = 1 << 20  # elements: 4 MiB


class Counting(Recorder):
    """Lets go of what it is told at once, and counts the vectors that are there meanwhile."""

    def __init__(self, bodies_begun: int) -> None:
        """`bodies_begun`: of one sender at a time."""
        super().__init__()
        self.bodies_begun = bodies_begun
        self.there: weakref.WeakSet[Any] = weakref.WeakSet()
        self.most = 0

    def room_for(
        self, src: Party, kind: Kind, id: int, cls: type, lengths: Sequence[int], shared: Sequence[Any] = ()
    ) -> list[Any]:
        made = [_Vector(np.empty(length, np.float32)) for length in lengths]
        self.there.update(made)
        self.most = max(self.most, len(self.there))
        return made

    def deliver(self, src: Party, envelope: Envelope) -> None:
        self.delivered.put((src, Envelope(envelope.kind, envelope.message.clock)))


class _Vector:
    """One that can be counted: equality of arrays is element by element."""

    def __init__(self, numbers: Any) -> None:
        self.numbers = numbers


class VectorMemory(NumpyMemory):
    def bytes_of(self, v: Any) -> memoryview:
        return super().bytes_of(v.numbers)


@pytest.fixture(params=[1, 3], ids=["one stream", "three streams"])
def parties(request: pytest.FixtureRequest) -> Iterator[tuple[Counting, list[TcpTransport]]]:
    """What a server hears, and the workers that are connected to it."""
    heard = Counting(1 if request.param == 1 else BODIES_MAX)
    made = [TcpTransport(server(0), TOKEN, VectorMemory())]
    made[0].open(heard)
    for rank in range(SENDERS):
        made.append(TcpTransport(worker(rank), TOKEN, NumpyMemory(), streams=request.param))
        made[-1].open(Recorder())
        made[-1].connect(server(0), made[0].address)
    yield heard, made[1:]
    for transport in reversed(made):
        transport.close()
    assert heard.failures.empty()


def push(g: Any, n: int) -> Envelope:
    return Envelope(Kind.TELL, Push(g=g, clock=n, samples=1))


def test_a_server_holds_no_more_slices_than_there_are_senders_and_bodies_begun(
    parties: tuple[Counting, list[TcpTransport]],
) -> None:
    heard, workers = parties
    g = np.zeros(SLICE, np.float32)
    for n in range(SLICES):
        for transport in workers:
            transport.send(server(0), push(g, n))
    clocks: dict[Party, list[int]] = {}
    for _ in range(SLICES * SENDERS):
        src, envelope = take(heard.delivered)
        clocks.setdefault(src, []).append(envelope.message)
    assert list(clocks.values()) == [list(range(SLICES))] * SENDERS
    assert heard.most <= SENDERS * heard.bodies_begun + 1  # the one that is being applied


class Answering(Recorder):
    """Answers every push with a vector of its own, and counts those that are still there."""

    most = 0

    def __init__(self) -> None:
        super().__init__()
        self.transport: TcpTransport | None = None
        self.answers: list[weakref.ref[Any]] = []

    def deliver(self, src: Party, envelope: Envelope) -> None:
        answer = np.zeros(SLICE, np.float32)
        self.answers.append(weakref.ref(answer))
        assert self.transport is not None
        self.transport.send(src, Envelope(Kind.TELL, Push(g=answer, clock=envelope.message.clock, samples=1)))
        del answer
        self.most = max(self.most, sum(there() is not None for there in self.answers))
        self.delivered.put((src, Envelope(envelope.kind, None)))


class Stuck(Recorder):
    """Takes nothing more until it may `go_on`."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def deliver(self, src: Party, envelope: Envelope) -> None:
        self.go_on.wait(PATIENCE_SECONDS)
        self.delivered.put((src, Envelope(envelope.kind, envelope.message.clock)))


def test_who_takes_no_answers_is_not_heard_before_it_does() -> None:
    served, stuck = Answering(), Stuck()
    ends = [TcpTransport(who, TOKEN, NumpyMemory()) for who in (server(0), worker(0))]
    served.transport = ends[0]
    for end, handler in zip(ends, (served, stuck), strict=True):
        end.open(handler)
    ends[1].connect(server(0), ends[0].address)
    pushes = 4 * SLICES
    for n in range(pushes):
        ends[1].send(server(0), push(np.zeros(SLICE // 64, np.float32), n))
    with contextlib.suppress(queue.Empty):  # what the kernel takes of the answers, and no more
        for _ in range(pushes):
            served.delivered.get(timeout=0.5)
    stuck.go_on.set()
    assert [take(stuck.delivered)[1].message for _ in range(pushes)] == list(range(pushes))
    for end in ends:
        end.close()
    assert served.most <= ANSWERS_MAX + 1  # the one that is being made


def test_what_waits_to_be_sent_is_not_copied(parties: tuple[Counting, list[TcpTransport]]) -> None:
    heard, workers = parties
    g = np.zeros(SLICE, np.float32)
    tracemalloc.start()
    for n in range(SLICES):
        workers[0].send(server(0), push(g, n))
    for _ in range(SLICES):
        take(heard.delivered)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * g.nbytes  # what the server receives into; 12 slices were sent


def test_servers_that_copy_to_one_another_both_at_once_do_not_wait_for_each_other() -> None:
    made = [TcpTransport(server(n), TOKEN, NumpyMemory()) for n in range(2)]
    heard = [Recorder(), Recorder()]
    for transport, recorder in zip(made, heard, strict=True):
        transport.open(recorder)
    made[0].connect(server(1), made[1].address)
    made[0].send(server(1), Envelope(Kind.TELL, Pull()))
    assert take(heard[1].delivered)[0] == server(0)  # it has greeted
    copy = np.zeros(2 * SLICE, np.float32)

    def copies(src: int, to: int) -> None:
        for n in range(6):
            made[src].send(server(to), push(copy, n))

    both = [threading.Thread(target=copies, args=way) for way in ((0, 1), (1, 0))]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(PATIENCE_SECONDS)
    for recorder in heard:
        assert [recorder.next()[1].clock for _ in range(6)] == [*range(6)]
    for transport in made:
        transport.close()
