"""Carries out what the coordinator's parts have decided (`paceline.core.coordination.decisions`).

The actions of a decision are carried out in their order. `assert_never` finds the arm that a new kind of action lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, assert_never

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.decisions import (
    BeginSnapshots,
    CloseConnection,
    CoordinatorDecision,
    FailCallsTo,
    FailureKind,
    ListenerNews,
    ModelEvaluated,
    NotifyWorkerJoined,
    NotifyWorkerLeft,
    PartyJoined,
    PlanAgreed,
    ProcessUnheard,
    ProgressReported,
    RoleNews,
    RunFailure,
    RunFinished,
    SendMessage,
    SnapshotKeeper,
    SnapshotOrder,
    StartTimer,
    StartTraining,
    Timer,
    TrainingStarted,
    VoidCallsToServers,
    WriteRecord,
)
from paceline.core.coordination.party import Party
from paceline.core.role import Role
from paceline.core.trace import Record
from paceline.live.node.node import Node
from paceline.live.protocol.message_parts import parts_of
from paceline.live.protocol.transport import Transport, tell


class CoordinatorListener(Protocol):
    """Receives every event of the run, on the coordinator's thread. The supervisor implements it."""

    def joined(self, who: Party, hello: control.Hello) -> None: ...
    def started(self, plan: control.Plan) -> None: ...
    def progressed(self, rank: int, progress: control.Progress) -> None: ...
    def recorded(self, record: Record) -> None: ...
    def failed(self, who: Party, cause: str, details: str, kind: FailureKind = FailureKind.ERROR) -> None: ...
    def finished(self, reason: str, seconds: float) -> None: ...
    def unheard(self, who: Party, incarnation: int, why: str) -> None: ...


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
                case PartyJoined() | TrainingStarted() | RunFailure() | RunFinished() | ProcessUnheard():
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
            case ProcessUnheard(who=who, incarnation=incarnation, why=why):
                self._listener.unheard(who, incarnation, why)
            case _:
                assert_never(news)
