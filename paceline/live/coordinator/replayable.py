"""Runs a coordinator on recorded lines, its inputs with their times. The same lines give the same outputs.

It has no clock, no socket and no thread: `hear` takes a line and returns the coordinator's outputs. Time is that of the
lines; timers that are due run before and after each line, at the time of that line. So whoever keeps the lines can
replay the coordinator at any time, and it decides the same again. Tests of the coordinator's determinism rest on this.

    line    [at, what, ...]    at: seconds on the recorder's clock
            "heard", party, frame              a message
            "records", party, lines            trace records, which the recorder has already
            "lost", party, why                 a lost connection
            "stop", reason                     the run is to end
            "kept"                             a snapshot is available
            "asked", number, question, party   a query; the output "answered" has its number
            "tick"                             time passes
    said    [what, ...]        an output: "send", "drop", "recorded", "joined", "failed", ...
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from paceline.core.coordination.decisions import FailureKind
from paceline.core.coordination.server_recovery import Snapshots
from paceline.core.errors import PeerLost, ProtocolError
from paceline.core.trace import MemberChange, Record, to_dict
from paceline.core.vector import Memory
from paceline.live.coordinator.coordinator import Coordinator
from paceline.live.coordinator.executor import CoordinatorListener
from paceline.live.node.node import Node
from paceline.live.party import COORDINATOR, Party
from paceline.live.protocol import control_messages as control
from paceline.live.protocol import frames
from paceline.live.protocol.transport import Envelope, Handler, Kind, Transport

Say = Callable[..., None]
Make = Callable[[Transport, Node, CoordinatorListener, Snapshots], Coordinator]


class NoVectors:
    """Raises ProtocolError for every vector, since the coordinator is sent none and sends none."""

    def empty(self, length: int) -> Any:
        raise ProtocolError("the coordinator is sent no vectors")

    def bytes_of(self, v: Any) -> memoryview:
        raise ProtocolError("the coordinator sends no vectors")

    def join(self, parts: Sequence[Any]) -> Any:
        raise ProtocolError("the coordinator has no vectors")


_MEMORY: Memory = NoVectors()


def framed(envelope: Envelope) -> bytes:
    """Encodes a message without vectors, as it would go over a socket. Raises ProtocolError."""
    return b"".join(frames.encode(envelope, _MEMORY))


def unframed(frame: bytes) -> Envelope:
    """Does the inverse of `framed`. Raises ProtocolError."""
    prefix = frames.decode_prefix(frame, 0)
    header = frames.decode_header(frame[frames.PREFIX.size :], 0)
    message = frames.assemble(header.codec, header.scalars, ())
    return Envelope(prefix.kind, message, prefix.id, prefix.slice, header.server_view)


def alone(message: Any) -> bytes:
    """Encodes one message of the control plane."""
    return framed(Envelope(Kind.CONTROL, message))


class Keeping(Protocol):
    """Says whether snapshots of a run can be kept; it depends on the configuration alone, so a replay agrees."""

    copies: bool

    def refuses(self, ready: control.Ready, servers: int) -> str: ...


class ReplayableCoordinator:
    """Runs a coordinator on lines. It stands in for the transport, the listener and the snapshots.

    make      builds the coordinator on these
    keeping   says whether snapshots can be kept
    """

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
        """Takes one line and returns the outputs that follow. Raises ProtocolError for an unknown kind of line."""
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
                raise ProtocolError(f"{what} is no kind of line that a coordinator takes")

    def _deliver(self, src: Party, envelope: Envelope) -> None:
        """Delivers a message as a connection does: a ProtocolError drops the sender."""
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

    # ---- outputs -----------------------------------------------------------------------------------------
    def say(self, what: str, *of: Any) -> None:
        self._tell_facts()
        self.said.append([what, *of])

    def _tell_facts(self) -> None:
        """Outputs the state that others read (phase, banned, model length) before all else, if it has changed."""
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
        if isinstance(record, MemberChange):
            self.say("incarnation", record.party, self.coordinator.incarnation_of(Party.parse(record.party)))
        self.say("recorded", to_dict(record))

    def failed(self, who: Party, cause: str, details: str, kind: FailureKind = FailureKind.ERROR) -> None:
        self.say("failed", str(who), cause, details)

    def finished(self, reason: str, seconds: float) -> None:
        self.say("finished", reason, seconds)


class _Lines:
    """Replaces the transport: what is sent becomes an output, and timers wait for the time of the lines."""

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
        """Does nothing: there is nothing to listen at."""

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
        """Does nothing: nothing is open."""


class _Snapshots:
    """Replaces the snapshot store: orders become outputs, and the recorder keeps the snapshots."""

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
