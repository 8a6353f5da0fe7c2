"""Replays the coordinator of a recorded run: the same machine, driven by the recorded inputs.

It has no clock, no socket and no thread. The clock is that of the recorded inputs, timers run out where they ran out
then, and what is sent goes nowhere. After each input its outputs are compared with the recorded ones.

The rule of this file: `replay` must not know what an input means, or a replay would agree with a machine that has
changed. It hands the input in, and compares.

What is not replayed: reading published state (the snapshots themselves), whose messages have vectors. No decision
follows from it.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.decisions import CoordinatorDecision, FailureKind, Timer
from paceline.core.coordination.operator_orders import OperatorOrder
from paceline.core.coordination.party import COORDINATOR, Party
from paceline.core.coordination.server_recovery import Snapshots
from paceline.core.errors import ConfigError, PeerLost, ProtocolError
from paceline.core.trace import Record
from paceline.core.vector import Memory
from paceline.live.coordinator.coordinator import Coordinator
from paceline.live.coordinator.executor import CoordinatorListener
from paceline.live.coordinator.inputs import CoordinatorObserver, InputKind
from paceline.live.node.node import Node
from paceline.live.protocol.transport import Envelope, Handler, LossCause, Transport
from paceline.live.recording.coordinator_recorder import carries_records, sent_by_role
from paceline.live.recording.message_text import actions_text, envelope_of, is_whole, raised, same

MakeCoordinator = Callable[[Transport, Node, CoordinatorListener, Snapshots, CoordinatorObserver], Coordinator]


class Keeping(Protocol):
    """Says whether snapshots of a run can be kept; it depends on the configuration alone, so a replay agrees."""

    copies: bool

    def refuses(self, ready: control.Ready, servers: int) -> str: ...


@dataclass(slots=True)
class RecordedInput:
    """Holds one recorded input and what followed from it.

    number    of the input, from 1
    at        seconds since the recorder began
    what      kind and values
    nested    inputs that came while this one's decisions were carried out
    kept      whether a snapshot was available
    outputs   what was decided and sent; None where the recording ends before that
    """

    number: int
    at: float
    what: list[Any]
    kept: bool
    nested: list[list[Any]] = field(default_factory=list)
    outputs: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class ReplayedInput:
    """Holds a recorded input, and the `outputs` that the machine gives today."""

    recorded: RecordedInput
    outputs: list[Any]

    @property
    def equal(self) -> bool:
        """Returns True if both are the same, or if it is not recorded what followed then."""
        then = self.recorded.outputs
        return then is None or same(then, self.outputs)


def inputs_of(lines: Iterable[Any]) -> Iterator[RecordedInput]:
    """Yields the inputs of the lines of a recording, without its header. Raises ConfigError for an unknown line."""
    kept, number, last = False, 0, None
    for line in lines:
        match line:
            case ["kept", bool() as kept]:
                pass
            case ["in", float() | int() as at, *what]:
                if last:
                    yield last
                number += 1
                last = RecordedInput(number, at, what, kept)
            case ["nested", _, *what] if last:
                last.nested.append(what)
            case ["out", list() as outputs] if last:
                last.outputs = outputs
            case ["full"]:
                break
            case _:
                raise ConfigError(
                    f"the recording has a line that this version of Paceline does not know: {line!r:.100}"
                )
    if last:
        yield last


def _reads_state(what: Sequence[Any]) -> bool:
    """Returns True for a message that cannot be made again, since state was read by it."""
    match what:
        case [InputKind.MESSAGE.value, _, dict() as text]:
            return not is_whole(text)
    return False


class CoordinatorReplay:
    """Drives a coordinator by recorded inputs. It stands in for transport, listener, snapshots and clock."""

    def __init__(self, make: MakeCoordinator, keeping: Keeping) -> None:
        """`make` builds the coordinator on these; `keeping` says whether snapshots can be kept."""
        self.now = 0.0
        self.kept = False
        self._outputs: list[Any] = []
        self._nested: list[list[Any]] = []
        self._is_first, self._folds = True, False
        transport = cast(Transport, _NoTransport(self))
        node = Node(transport, cast(Memory, None), clock=lambda: self.now)
        self.coordinator = make(transport, node, _NoListener(), _NoSnapshots(self, keeping), self)

    def take(self, recorded: RecordedInput) -> ReplayedInput:
        """Hands one input in. Raises ConfigError for one that this version of Paceline does not know."""
        if _reads_state(recorded.what):
            return ReplayedInput(recorded, recorded.outputs or [])
        self.now, self.kept = recorded.at, recorded.kept
        self._outputs, self._nested, self._is_first = [], list(recorded.nested), True
        with contextlib.redirect_stderr(io.StringIO()):  # where refused messages are told
            self._hand_in(recorded.what)
        return ReplayedInput(recorded, self._outputs)

    def _hand_in(self, what: Sequence[Any]) -> None:
        machine = self.coordinator
        match what:
            case ["message", str() as src, dict() as text]:
                self._deliver(Party.parse(src), text)
            case ["lost", str() as who, str() as why, str() as cause]:
                machine.lost(Party.parse(who), why, LossCause[cause])
            case ["failed", str() as why]:
                machine.failed(RuntimeError(why))
            case ["timer", str() as timer, int() as number]:
                machine.timer_ran_out(Timer[timer], number)
            case ["rendezvous"]:
                machine.tick_rendezvous()
            case ["stop", str() as reason]:
                machine.stop_now(reason)
            case ["ended", str() as who, str() as why]:
                machine.ended_now(Party.parse(who), why)
            case ["started", str() as who, int() as incarnation]:
                machine.started_now(Party.parse(who), incarnation)
            case ["order", str() as kind, int() as rank, int() | float() as factor, str() as why_not]:
                machine.order_now(OperatorOrder(kind=kind, rank=rank, factor=factor), why_not)
            case _:
                raise ConfigError(f"{what!r:.100} is no input that a coordinator takes")

    def _deliver(self, src: Party, text: dict[str, Any]) -> None:
        with contextlib.suppress(ProtocolError):  # it is an output by now, and would close the connection
            self.coordinator.deliver(src, envelope_of(text))

    def dropped(self, who: Party) -> None:
        """Reports at once that the connection is lost, if closing it did that then."""
        match self._nested:
            case [["lost", str() as lost, *_], *rest] if lost == str(who):
                what, self._nested = self._nested[0], rest
                self._hand_in(what)

    # ---- what the coordinator tells ----------------------------------------------------------------------
    @contextlib.contextmanager
    def input(self, kind: InputKind, *values: Any) -> Iterator[None]:
        if self._is_first:
            self._is_first, self._folds = False, carries_records(kind, values)
        try:
            yield
        except Exception as error:
            self.note([raised(error)])
            raise

    def decided(self, decision: CoordinatorDecision) -> None:
        self.note(actions_text(decision.actions, folds_records=self._folds))

    def note(self, outputs: list[Any]) -> None:
        """Adds to what follows from the present input."""
        self._outputs += outputs


class _NoTransport:
    """Replaces the transport: nothing is sent, and timers run out where the recording says so."""

    me, address = COORDINATOR, ""

    def __init__(self, replay: CoordinatorReplay) -> None:
        self._replay = replay

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        """Does nothing: the recording says when a timer ran out."""

    def send(self, to: Party, envelope: Envelope) -> None:
        self._replay.note(sent_by_role(to, envelope))

    def drop(self, party: Party, incarnation: int, why: str) -> None:
        self._replay.dropped(party)

    def open(self, handler: Handler) -> None:
        """Does nothing: there is nothing to listen at."""

    def way_to(self, party: Party) -> str:
        raise PeerLost("a replay has no connections")


class _NoListener:
    """Replaces the supervisor, who hears nothing that is not in the decisions."""

    def joined(self, who: Party, hello: control.Hello) -> None: ...
    def started(self, plan: control.Plan) -> None: ...
    def progressed(self, rank: int, progress: control.Progress) -> None: ...
    def recorded(self, record: Record) -> None: ...
    def failed(self, who: Party, cause: str, details: str, kind: FailureKind = FailureKind.ERROR) -> None: ...
    def finished(self, reason: str, seconds: float) -> None: ...
    def unheard(self, who: Party, incarnation: int, why: str) -> None: ...


class _NoSnapshots:
    """Replaces the snapshot store; the recording says when a snapshot was available."""

    def __init__(self, replay: CoordinatorReplay, keeping: Keeping) -> None:
        self._replay, self._keeping = replay, keeping

    @property
    def copies(self) -> bool:
        return self._keeping.copies

    @property
    def available(self) -> bool:
        return self._replay.kept

    def refuses(self, ready: control.Ready, servers: int) -> str:
        return self._keeping.refuses(ready, servers)

    def begin(self, plan: control.Plan) -> None: ...
    def hold(self) -> None: ...
    def release(self) -> None: ...
