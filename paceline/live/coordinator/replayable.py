"""A coordinator that is made of lines: what it heard, in which order and when. The same lines give the same one.

It has no clock, no socket and no thread: `hear` takes a line and returns what the coordinator says to it. Time is that
of the lines; a timer that is due runs before and after a line is heard, at the time of that line. So whoever keeps the
lines can make the coordinator again, wherever and whenever, and it will have said the very same things.

    line    [at, what, ...]    at: seconds on the clock of whoever keeps the lines
    said    [what, ...]
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from paceline.core.errors import PeerLost, ProtocolError
from paceline.core.trace import Membership, Record, to_dict
from paceline.core.vector import Memory
from paceline.live.coordinator.coordinator import Coordinator
from paceline.live.coordinator.decisions import CoordinatorListener, FailureKind
from paceline.live.coordinator.server_recovery import Snapshots
from paceline.live.node.node import Node
from paceline.live.party import COORDINATOR, Party
from paceline.live.protocol import control_messages as control
from paceline.live.protocol import frames
from paceline.live.protocol.transport import Envelope, Handler, Kind, Transport

Say = Callable[..., None]
Make = Callable[[Transport, Node, CoordinatorListener, Snapshots], Coordinator]


class NoVectors:
    """The memory of one who is sent none."""

    def empty(self, length: int) -> Any:
        raise ProtocolError("the coordinator is sent no vectors")

    def bytes_of(self, v: Any) -> memoryview:
        raise ProtocolError("the coordinator sends no vectors")

    def join(self, parts: Sequence[Any]) -> Any:
        raise ProtocolError("the coordinator has no vectors")


_MEMORY: Memory = NoVectors()


def framed(envelope: Envelope) -> bytes:
    """A message without vectors, as it would go over a socket. Raises ProtocolError."""
    return b"".join(frames.encode(envelope, _MEMORY))


def unframed(frame: bytes) -> Envelope:
    """Does the inverse of `framed`. Raises ProtocolError."""
    prefix = frames.decode_prefix(frame, 0)
    header = frames.decode_header(frame[frames.PREFIX.size :], 0)
    message = frames.assemble(header.codec, header.scalars, ())
    return Envelope(prefix.kind, message, prefix.id, prefix.slice, header.server_view)


def alone(message: Any) -> bytes:
    """A message of the control plane that is told by itself."""
    return framed(Envelope(Kind.CONTROL, message))


class Keeping(Protocol):
    """What snapshots of a run can be kept, as everybody finds who knows what is asked for."""

    copies: bool

    def refuses(self, ready: control.Ready, servers: int) -> str: ...


class ReplayableCoordinator:
    """`make` makes the coordinator, from what it is lent; `keeping` says for it what snapshots there can be."""

    def __init__(self, make: Make, keeping: Keeping) -> None:
        self.now = 0.0
        self.said: list[list[Any]] = []
        self._told: tuple[Any, ...] = ()
        self._muted = False
        self._transport = _Lines(self)
        self._snapshots = _Snapshots(self.say, keeping)
        node = Node(self._transport, _MEMORY, clock=lambda: self.now)
        self.coordinator = make(self._transport, node, self, self._snapshots)

    def hear(self, line: list[Any]) -> list[list[Any]]:
        """One line; returns what is said to it."""
        self.now = max(self.now, line[0])
        self._transport.run_due()
        self._hear(*line[1:])
        self._transport.run_due()
        self._tell_facts()
        said, self.said = self.said, []
        return said

    def _hear(self, what: str, *of: Any) -> None:
        match what:
            case "heard":
                self._deliver(Party.parse(of[0]), unframed(of[1]))
            case "records":  # whoever listens has them already
                self._muted = True
                self._deliver(Party.parse(of[0]), Envelope(Kind.CONTROL, control.Records(lines=of[1])))
                self._muted = False
            case "lost":
                self.coordinator.lost(Party.parse(of[0]), of[1])
            case "stop":
                self.coordinator.stop(of[0])
            case "kept":
                self._snapshots.available = True
            case "asked":
                self.say("answered", of[0], self._answer(of[1], of[2]))
            case "tick":
                pass
            case _:
                raise ProtocolError(f"{what} is no line for a coordinator")

    def _deliver(self, src: Party, envelope: Envelope) -> None:
        """As a connection does it: what breaks the rules closes that."""
        try:
            self.coordinator.deliver(src, envelope)
        except ProtocolError as error:
            self.say("drop", str(src), self.coordinator.incarnation_of(src), str(error))

    def _answer(self, question: str, who: str) -> Any:
        match question:
            case "survives":
                return self.coordinator.survives(Party.parse(who))
            case "why_last":
                return self.coordinator.why_last(Party.parse(who))
            case _:
                return [str(party) for party in self.coordinator.missing()]

    # ---- what it says ------------------------------------------------------------------------------------
    def say(self, what: str, *of: Any) -> None:
        self._tell_facts()
        self.said.append([what, *of])

    def _tell_facts(self) -> None:
        """What others may want to look at, whenever it has changed: before whatever else is said."""
        of = self.coordinator
        facts = (of.phase.name, of.stopping, len(of.banned), of.length)
        if facts != self._told:
            self._told = facts
            self.said.append(["facts", of.phase.name, of.stopping, sorted(map(str, of.banned)), of.length])

    def joined(self, who: Party, hello: control.Hello) -> None:
        self.say("joined", str(who), alone(hello))

    def started(self, plan: control.Plan) -> None:
        self.say("started", self.now, alone(plan))

    def progressed(self, rank: int, progress: control.Progress) -> None:
        self.say("progressed", rank, alone(progress))

    def recorded(self, record: Record) -> None:
        if self._muted:
            return
        if isinstance(record, Membership):
            self.say("incarnation", record.party, self.coordinator.incarnation_of(Party.parse(record.party)))
        self.say("recorded", to_dict(record))

    def failed(self, who: Party, cause: str, details: str, kind: FailureKind = FailureKind.ERROR) -> None:
        self.say("failed", str(who), cause, details)

    def finished(self, reason: str, seconds: float) -> None:
        self.say("finished", reason, seconds)


class _Lines:
    """The transport of a replica: what is sent is said, and timers wait for lines."""

    me, address = COORDINATOR, ""

    def __init__(self, replica: ReplayableCoordinator) -> None:
        self._replica = replica
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = itertools.count()

    def run_due(self) -> None:
        while self._timers and self._timers[0][0] <= self._replica.now:
            heapq.heappop(self._timers)[2]()

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (self._replica.now + seconds, next(self._sequence), action))

    def send(self, to: Party, envelope: Envelope) -> None:
        self._replica.say("send", str(to), framed(envelope))

    def drop(self, party: Party, incarnation: int, why: str) -> None:
        self._replica.say("drop", str(party), incarnation, why)

    def open(self, handler: Handler) -> None:
        """It is: the lines come."""

    def connect(self, party: Party, address: str, incarnation: int = 0) -> None:
        raise PeerLost("the coordinator calls nobody")

    def way_to(self, party: Party) -> str:
        raise PeerLost("the coordinator has connections of its own to nobody")

    def traffic(self) -> tuple[int, int]:
        return 0, 0

    def shared(self) -> tuple[int, int]:
        return 0, 0

    def progress(self, party: Party) -> tuple[int, bool]:
        return 0, False

    def close(self) -> None:
        """Nothing is open."""


class _Snapshots:
    """They are with whoever keeps the lines."""

    def __init__(self, say: Say, keeping: Keeping) -> None:
        self._say, self._keeping, self.available = say, keeping, False

    @property
    def copies(self) -> bool:
        return self._keeping.copies

    def refuses(self, ready: control.Ready, servers: int) -> str:
        self._say("refuses", alone(ready), servers)
        return self._keeping.refuses(ready, servers)

    def begin(self, plan: control.Plan) -> None:
        self._say("begin", alone(plan))

    def hold(self) -> None:
        self._say("hold")

    def release(self) -> None:
        self._say("release")
