"""A node behind a transport, and roles written for one test."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np

from paceline.core.coordination.party import Party, server, worker
from paceline.core.effects import Compute, Effect, Reply, Tell
from paceline.core.message import message
from paceline.core.role import Role, RoleContext
from paceline.core.sharding import lay_out
from paceline.core.vector import Vector
from paceline.live.net.inprocess_transport import Hub
from paceline.live.node.node import Node
from paceline.live.protocol.transport import Envelope, Kind, LossCause, Transport
from tests.live.fakes import PATIENCE_SECONDS, NumpyMemory

PLACE = RoleContext(me=0, workers=(0, 1, 2), w=None, update=lambda w, g, samples: w)
LAYOUT = lay_out(10, 3)
SHARDS = LAYOUT.slices
WHOLE = lay_out(10, 1)
TEN = np.arange(10, dtype=np.float32)
WORK = Compute(TEN)


@message("stage.Ask")
class Ask:
    v: Vector
    n: int


@message("stage.Said")
class Said:
    v: Vector
    n: int


class Behind:
    """The handler of a node alone, without a control plane."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.failures: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def deliver(self, src: Party, envelope: Envelope) -> None:
        self.node.deliver(src, envelope)

    def room_for(
        self, src: Party, kind: Kind, id: int, cls: type, lengths: Sequence[int], shared: Sequence[Any]
    ) -> list[Any]:
        return self.node.room_for(src, kind, id, lengths, shared)

    def lost(self, src: Party, why: str, cause: LossCause = LossCause.CLOSED) -> None:
        self.node.lost(src, why)

    def failed(self, error: BaseException) -> None:
        self.failures.put(error)


class Stage:
    """Nodes on one hub."""

    def __init__(self) -> None:
        self.hub = Hub()
        self.transports: list[Transport] = []  # also of those in whose place others are now
        self.nodes: dict[Party, Node] = {}
        self.behind: dict[Party, Behind] = {}

    def node(self, who: Party, timeout_s: float = PATIENCE_SECONDS) -> Node:
        transport = self.hub.transport(who)
        self.transports.append(transport)
        node = self.nodes[who] = Node(transport, NumpyMemory(), timeout_s=timeout_s)
        self.behind[who] = Behind(node)
        transport.open(self.behind[who])
        return node

    def close(self) -> None:
        for transport in self.transports:
            transport.close()

    def failures(self) -> list[BaseException]:
        return [behind.failures.get() for behind in self.behind.values() if not behind.failures.empty()]


class Loop(Role):
    """Runs a generator of the test's; keeps every result it was resumed with."""

    def __init__(self, run: Callable[[], Generator[Effect, Any, None]]) -> None:
        super().__init__(None, PLACE)
        self.run = run  # type: ignore[method-assign]


class AnswersLater(Loop):
    """Asked between two steps; answers after the second."""

    def __init__(self) -> None:
        super().__init__(self.work)
        self.came = threading.Event()

    def work(self) -> Generator[Effect, Any, None]:
        yield WORK
        yield Reply(1, Said(v=TEN, n=9))
        yield WORK

    def on(self, now: float, src: int, message: Any) -> Iterator[Any]:
        self.came.set()
        yield from ()


class Asker(Loop):
    """Yields these effects one after the other."""

    def __init__(self, *effects: Effect) -> None:
        super().__init__(self._run)
        self.effects, self.results = effects, list[Any]()

    def _run(self) -> Generator[Effect, Any, None]:
        for effect in self.effects:
            self.results.append((yield effect))


class Answerer(Role):
    """Does what the test says upon receiving; keeps what came."""

    def __init__(self, answer: Callable[[int, Any], Iterator[Tell | Reply]]) -> None:
        super().__init__(None, PLACE)
        self.answer, self.came, self.left = answer, list[Any](), list[int]()
        self._heard = threading.Semaphore(0)

    def heard(self) -> bool:
        """Has one more message come by now?"""
        return self._heard.acquire(timeout=PATIENCE_SECONDS)

    def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
        self.came.append((src, message))
        yield from self.answer(src, message)
        self._heard.release()

    def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        self.left.append(rank)
        yield from ()


def echo(src: int, message: Any) -> Iterator[Tell | Reply]:
    yield Reply(src, Said(v=message.v * 2, n=message.n))


def nothing(src: int, message: Any) -> Iterator[Tell | Reply]:
    yield from ()


def servers(stage: Stage, answer: Any = echo, count: int = 3) -> list[Answerer]:
    roles = [Answerer(answer) for _ in range(count)]
    for shard, role in enumerate(roles):
        stage.node(server(shard)).place(role)
    return roles


def asker(stage: Stage, *effects: Effect, rank: int = 0, timeout_s: float = 15.0) -> tuple[Node, Asker]:
    node = stage.node(worker(rank), timeout_s)
    role = Asker(*effects)
    node.place(role, LAYOUT)
    return node, role
