"""What the coordinator decides, as values, and the one place that carries it out.

    a message, a loss, a timer  ->  the coordinator's parts decide  ->  CoordinatorDecision  ->  DecisionExecutor

The parts send, record and start nothing themselves. They add actions to `Decisions`; when an input has been dealt with,
all of them come out as one `CoordinatorDecision`. Its actions are carried out in the order in which they were decided,
since others rely on that order: a party hears that a worker left before it gets answers of the scheme that already
count without it, and a run's last record is in the trace before anybody hears that the run is over.

A new kind of action needs a class here and an arm in `DecisionExecutor`; `assert_never` finds the missing arm.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, assert_never

import msgspec

from paceline.core.role import Role
from paceline.core.trace import Record
from paceline.live.node.node import Node
from paceline.live.party import Party
from paceline.live.protocol import control_messages as control
from paceline.live.protocol.message_parts import parts_of
from paceline.live.protocol.transport import Transport, tell

A = TypeVar("A")


class Timer(enum.Enum):
    """Names what the coordinator checks when a timer runs out."""

    MEMBERS = enum.auto()  # is a worker or a server silent or stuck?
    EVALUATOR = enum.auto()  # is the evaluator silent?
    SERVERS_BACK = enum.auto()  # are all servers in their places again? `number`: of the order
    TIME_LIMIT = enum.auto()  # the run has lasted as long as it was to last


# ---- what is to be done: sent, recorded, started ------------------------------------------------------------
class SendMessage(msgspec.Struct, frozen=True):
    """Sends a message of the control plane to each of these parties that is connected."""

    to: tuple[Party, ...]
    message: Any


class WriteRecord(msgspec.Struct, frozen=True):
    record: Record


class StartTimer(msgspec.Struct, frozen=True):
    seconds: float
    timer: Timer
    number: int = 0


class CloseConnection(msgspec.Struct, frozen=True):
    """Closes the connection to that incarnation of `who`, which is over. A later incarnation may connect."""

    who: Party
    incarnation: int
    why: str


# ---- what the coordinator's own role and its open calls hear ------------------------------------------------
class PlanAgreed(msgspec.Struct, frozen=True):
    """Makes the node check messages against the bounds of `plan` from now on."""

    plan: control.Plan


class StartTraining(msgspec.Struct, frozen=True):
    """Places `role`, tells it that the workers `not_started` are absent, and starts the clock of the run."""

    role: Role
    not_started: tuple[int, ...]


class NotifyWorkerLeft(msgspec.Struct, frozen=True):
    rank: int


class NotifyWorkerJoined(msgspec.Struct, frozen=True):
    rank: int


class FailCallsTo(msgspec.Struct, frozen=True):
    """Fails every call that waits for an answer of `who`."""

    who: Party
    why: str


class VoidCallsToServers(msgspec.Struct, frozen=True):
    """Voids all open calls to servers, since one of them is being replaced."""


class ModelEvaluated(msgspec.Struct, frozen=True):
    accuracy: float


# ---- what happens to the snapshots that servers are replaced from -------------------------------------------
class SnapshotOrder(enum.Enum):
    HOLD = enum.auto()  # keep the snapshot there is, and no other
    RELEASE = enum.auto()


class BeginSnapshots(msgspec.Struct, frozen=True):
    plan: control.Plan


# ---- what the listener hears --------------------------------------------------------------------------------
class PartyJoined(msgspec.Struct, frozen=True):
    who: Party
    hello: control.Hello


class TrainingStarted(msgspec.Struct, frozen=True):
    plan: control.Plan


class ProgressReported(msgspec.Struct, frozen=True):
    """`progress` of all incarnations of a worker together."""

    rank: int
    progress: control.Progress


class FailureKind(enum.Enum):
    """Says why a party makes the run fail. When several failures come together, the kind decides which is the cause."""

    ENDED = "its process ended"
    ERROR = "it reports an error of its own"
    WAS_LOST = "the coordinator lost it"
    LOST_ANOTHER = "it lost another party, or the coordinator"


class RunFailure(msgspec.Struct, frozen=True):
    who: Party
    cause: str
    details: str = ""
    kind: FailureKind = FailureKind.ERROR


class RunFinished(msgspec.Struct, frozen=True):
    reason: str
    seconds: float


RoleNews = PlanAgreed | NotifyWorkerLeft | NotifyWorkerJoined | FailCallsTo | VoidCallsToServers | ModelEvaluated
ListenerNews = PartyJoined | TrainingStarted | RunFailure | RunFinished
Action = (
    SendMessage
    | WriteRecord
    | StartTimer
    | CloseConnection
    | StartTraining
    | RoleNews
    | SnapshotOrder
    | BeginSnapshots
    | ListenerNews
    | ProgressReported
)


class CoordinatorDecision(msgspec.Struct, frozen=True):
    """Holds all actions that follow from one input, in the order in which they must be carried out."""

    actions: tuple[Action, ...]

    @property
    def messages(self) -> list[SendMessage]:
        """Returns the messages to send."""
        return self._of(SendMessage)

    @property
    def records(self) -> list[Record]:
        """Returns the records to write to the trace."""
        return [written.record for written in self._of(WriteRecord)]

    @property
    def timers(self) -> list[StartTimer]:
        """Returns the timers to start."""
        return self._of(StartTimer)

    def _of(self, kind: type[A]) -> list[A]:
        return [action for action in self.actions if isinstance(action, kind)]


@dataclass(slots=True, eq=False)
class Decisions:
    """Collects the actions that the parts of the coordinator decide, until `take` returns them as one value."""

    _actions: list[Action] = field(default_factory=list)

    def add(self, action: Action) -> None:
        self._actions.append(action)

    def send(self, to: Iterable[Party], message: Any) -> None:
        if whom := tuple(to):
            self.add(SendMessage(whom, message))

    def record(self, record: Record) -> None:
        self.add(WriteRecord(record))

    def start_timer(self, seconds: float, timer: Timer, number: int = 0) -> None:
        self.add(StartTimer(seconds, timer, number))

    def close_connection(self, who: Party, incarnation: int, why: str) -> None:
        self.add(CloseConnection(who, incarnation, why))

    def fail(self, who: Party, cause: str, kind: FailureKind = FailureKind.ERROR) -> None:
        """Ends the run as failed, because of `who`."""
        self.add(RunFailure(who, cause, kind=kind))

    def take(self) -> CoordinatorDecision | None:
        """Returns what was decided since the last call, or None if nothing was."""
        actions, self._actions = self._actions, []
        return CoordinatorDecision(tuple(actions)) if actions else None


# ---- carrying it out ----------------------------------------------------------------------------------------
class CoordinatorListener(Protocol):
    """Receives every event of the run, on the coordinator's thread. The supervisor implements it."""

    def joined(self, who: Party, hello: control.Hello) -> None: ...
    def started(self, plan: control.Plan) -> None: ...
    def progressed(self, rank: int, progress: control.Progress) -> None: ...
    def recorded(self, record: Record) -> None: ...
    def failed(self, who: Party, cause: str, details: str, kind: FailureKind = FailureKind.ERROR) -> None: ...
    def finished(self, reason: str, seconds: float) -> None: ...


class SnapshotKeeper(Protocol):
    """Takes snapshots of the servers, and keeps the newest one while servers are restored from it."""

    def begin(self, plan: control.Plan) -> None:
        """Starts taking snapshots; called when training has started."""

    def hold(self) -> None:
        """Keeps the newest snapshot and takes no other until `release`."""

    def release(self) -> None: ...


class DecisionExecutor:
    """Carries decisions out, on the coordinator's thread; the only place where the coordinator acts."""

    def __init__(
        self,
        transport: Transport,
        node: Node,
        listener: CoordinatorListener,
        snapshots: SnapshotKeeper | None,
        *,
        on_timer: Callable[[Timer, int], None],
        on_clock: Callable[[], None],
    ) -> None:
        """`on_timer` is called when a timer runs out, and `on_clock` when the clock of the run has been started."""
        self._transport, self._node = transport, node
        self._listener, self._snapshots = listener, snapshots
        self._on_timer, self._on_clock = on_timer, on_clock

    def carry_out(self, decision: CoordinatorDecision) -> None:
        for action in decision.actions:
            match action:
                case SendMessage(to=to, message=message):
                    for part in parts_of(message):
                        tell(self._transport, to, part)
                case WriteRecord(record=record):
                    self._listener.recorded(record)
                case ProgressReported(rank=rank, progress=progress):
                    self._listener.progressed(rank, progress)
                case StartTimer() | CloseConnection():
                    self._tell_transport(action)
                case StartTraining(role=role, not_started=not_started):
                    self._start_training(role, not_started)
                case SnapshotOrder() | BeginSnapshots():
                    self._order(action)
                case PartyJoined() | TrainingStarted() | RunFailure() | RunFinished():
                    self._tell_listener(action)
                case _:
                    self._tell_role(action)

    def _tell_transport(self, action: StartTimer | CloseConnection) -> None:
        match action:
            case StartTimer(seconds=seconds, timer=timer, number=number):
                self._transport.call_later(seconds, lambda: self._on_timer(timer, number))
            case CloseConnection(who=who, incarnation=incarnation, why=why):
                self._transport.drop(who, incarnation, why)
            case _:
                assert_never(action)

    def _start_training(self, role: Role, not_started: tuple[int, ...]) -> None:
        self._node.place(role)
        for rank in not_started:
            self._node.gone(rank)
        self._node.start_clock()
        self._on_clock()

    def _order(self, order: SnapshotOrder | BeginSnapshots) -> None:
        assert self._snapshots is not None
        match order:
            case BeginSnapshots(plan=plan):
                self._snapshots.begin(plan)
            case SnapshotOrder.HOLD:
                self._snapshots.hold()
            case SnapshotOrder.RELEASE:
                self._snapshots.release()
            case _:
                assert_never(order)

    def _tell_role(self, news: RoleNews) -> None:
        match news:
            case PlanAgreed(plan=plan):
                self._node.message_checks.planned(plan)
            case NotifyWorkerLeft(rank=rank):
                self._node.gone(rank)
            case NotifyWorkerJoined(rank=rank):
                self._node.came(rank)
            case FailCallsTo(who=who, why=why):
                self._node.lost(who, why)
            case VoidCallsToServers():
                self._node.go_back(self._node.server_view, rolled_back=False)
            case ModelEvaluated(accuracy=accuracy):
                self._node.judged(accuracy)
            case _:
                assert_never(news)

    def _tell_listener(self, news: ListenerNews) -> None:
        match news:
            case PartyJoined(who=who, hello=hello):
                self._listener.joined(who, hello)
            case TrainingStarted(plan=plan):
                self._listener.started(plan)
            case RunFailure(who=who, cause=cause, details=details, kind=kind):
                self._listener.failed(who, cause, details, kind)
            case RunFinished(reason=reason, seconds=seconds):
                self._listener.finished(reason, seconds)
            case _:
                assert_never(news)
