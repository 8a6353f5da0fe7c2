"""What the coordinator decides, as values: what to send, record, start and stop.

    a message, a loss, a timer  ->  the coordinator's parts decide  ->  CoordinatorDecision  ->  a driver carries it out

The parts send, record and start nothing themselves. They add actions to `Decisions`; when an input has been dealt with,
all of them come out as one `CoordinatorDecision`. Its actions are carried out in the order in which they were decided,
since others rely on that order: a party hears that a worker left before it gets answers of the scheme that already
count without it, and a run's last record is in the trace before anybody hears that the run is over.

A driver carries them out: a live run by `paceline.live.coordinator.executor`, a simulated one by
`paceline.sim.faults.coordination.members`. A new kind of action needs a class here and an arm in both.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import Party
from paceline.core.role import Role
from paceline.core.trace import Record

A = TypeVar("A")


class Timer(enum.Enum):
    """Names what the coordinator checks when a timer runs out."""

    MEMBERS = enum.auto()  # is a worker or a server silent or stuck?
    EVALUATOR = enum.auto()  # is the evaluator silent?
    SERVERS_BACK = enum.auto()  # are all servers in their places again? `number`: of the order
    TIME_LIMIT = enum.auto()  # the run has lasted as long as it was to last


# ---- what is to be done: sent, recorded, started ------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class SendMessage:
    """Sends a message of the control plane to each of these parties that is connected."""

    to: tuple[Party, ...]
    message: Any


@dataclass(frozen=True, slots=True)
class WriteRecord:
    record: Record


@dataclass(frozen=True, slots=True)
class StartTimer:
    seconds: float
    timer: Timer
    number: int = 0


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """Closes the connection to that incarnation of `who`, which is over. A later incarnation may connect."""

    who: Party
    incarnation: int
    why: str


# ---- what the coordinator's own role and its open calls hear ------------------------------------------------
@dataclass(frozen=True, slots=True)
class PlanAgreed:
    """Makes the node check messages against the bounds of `plan` from now on."""

    plan: control.Plan


@dataclass(frozen=True, slots=True)
class StartTraining:
    """Places `role`, tells it that the workers `not_started` are absent, and starts the clock of the run."""

    role: Role
    not_started: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NotifyWorkerLeft:
    rank: int


@dataclass(frozen=True, slots=True)
class NotifyWorkerJoined:
    rank: int


@dataclass(frozen=True, slots=True)
class FailCallsTo:
    """Fails every call that waits for an answer of `who`."""

    who: Party
    why: str


@dataclass(frozen=True, slots=True)
class VoidCallsToServers:
    """Voids all open calls to servers, since one of them is being replaced."""


@dataclass(frozen=True, slots=True)
class ModelEvaluated:
    accuracy: float


# ---- what happens to the snapshots that servers are replaced from -------------------------------------------
class SnapshotOrder(enum.Enum):
    HOLD = enum.auto()  # keep the snapshot there is, and no other
    RELEASE = enum.auto()


@dataclass(frozen=True, slots=True)
class BeginSnapshots:
    plan: control.Plan


# ---- what the listener hears --------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class PartyJoined:
    who: Party
    hello: control.Hello


@dataclass(frozen=True, slots=True)
class TrainingStarted:
    plan: control.Plan


@dataclass(frozen=True, slots=True)
class ProgressReported:
    """`progress` of all incarnations of a worker together."""

    rank: int
    progress: control.Progress


class FailureKind(enum.Enum):
    """Says why a party makes the run fail. When several failures come together, the kind decides which is the cause."""

    ENDED = "its process ended"
    ERROR = "it reports an error of its own"
    WAS_LOST = "the coordinator lost it"
    LOST_ANOTHER = "it lost another party, or the coordinator"


@dataclass(frozen=True, slots=True)
class RunFailure:
    who: Party
    cause: str
    details: str = ""
    kind: FailureKind = FailureKind.ERROR


@dataclass(frozen=True, slots=True)
class RunFinished:
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ProcessUnheard:
    """That incarnation of `who` was started and has not said Hello in time: its process is to be killed."""

    who: Party
    incarnation: int
    why: str


RoleNews = PlanAgreed | NotifyWorkerLeft | NotifyWorkerJoined | FailCallsTo | VoidCallsToServers | ModelEvaluated
ListenerNews = PartyJoined | TrainingStarted | RunFailure | RunFinished | ProcessUnheard
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


@dataclass(frozen=True, slots=True)
class CoordinatorDecision:
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


class SnapshotKeeper(Protocol):
    """Takes snapshots of the servers, and keeps the newest one while servers are restored from it."""

    def begin(self, plan: control.Plan) -> None:
        """Starts taking snapshots; called when training has started."""

    def hold(self) -> None:
        """Keeps the newest snapshot and takes no other until `release`."""

    def release(self) -> None: ...
