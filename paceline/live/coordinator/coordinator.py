"""The coordinator of a live run: its machine, driven by messages, timers and losses of a transport.

`paceline.core.coordinator.machine` says which input goes to which part and what follows. This file brings the inputs to
it, on the transport's thread, and has what it decides carried out (`executor.py`). Two things are answered here, since
they are no matter of the machine: who may send what (`paceline.live.control.permissions`), and the keys of those who
meet for torch.distributed (`Rendezvous`).

    inputs.py      what comes in, and who observes that and the decisions
    planning.py    makes the plan of a run from what all have reported
    executor.py    carries out what the machine decides
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.decisions import Timer
from paceline.core.coordination.lifecycle import RunPhase, RunRules, RunSize
from paceline.core.coordination.operator_orders import OperatorOrder
from paceline.core.coordination.party import Party
from paceline.core.coordination.server_recovery import Snapshots
from paceline.core.coordinator.machine import CoordinatorMachine
from paceline.core.errors import ProtocolError
from paceline.core.trace import Decided
from paceline.live.collectives.store import QUESTIONS, Rendezvous
from paceline.live.control import permissions
from paceline.live.control.trace_records import records_from
from paceline.live.coordinator.executor import CoordinatorListener, DecisionExecutor
from paceline.live.coordinator.inputs import NO_OBSERVER, CoordinatorObserver, InputKind
from paceline.live.coordinator.planning import LivePlanner, RunChoices
from paceline.live.node.node import Node
from paceline.live.protocol.transport import CONTROL, Envelope, Kind, LossCause, Transport


class Coordinator:
    """Brings up, watches and ends a run.

    `stop`, `ended`, `order` may be called from any thread; everything else runs on the transport's thread.
    """

    def __init__(
        self,
        transport: Transport,
        node: Node,
        listener: CoordinatorListener,
        size: RunSize,
        choices: RunChoices,
        rules: RunRules,
        snapshots: Snapshots | None = None,
        *,
        observer: CoordinatorObserver = NO_OBSERVER,
    ) -> None:
        """Builds the parts of the coordinator; `open` starts it.

        snapshots: the store from which a lost server is replaced. Without one, a lost server ends the run.
        observer: it hears all inputs and decisions, as the recorder of a run does.
        """
        self._input, self._decided = observer.input, observer.decided
        self.node, self._transport = node, transport
        planner = LivePlanner(choices, rules, size.workers, lambda record: self.machine.decide.record(record))
        self.machine = machine = CoordinatorMachine(size, rules, planner, node.message_checks, snapshots, node.now)
        self._rendezvous = Rendezvous(transport, machine.run.roster.workers, self._tick_rendezvous_later)
        self._executor = DecisionExecutor(
            transport,
            node,
            listener,
            snapshots,
            on_timer=self.timer_ran_out,
            on_clock=machine.begin_training,
        )
        self._carrying_out = False
        node.message_checks.report_to(expel=machine.expel, on_strike=self._refused)

    def open(self) -> str:
        """Opens the transport and returns the address that the other processes connect to."""
        self._transport.open(self)
        return self._transport.address

    @property
    def phase(self) -> RunPhase:
        return self.machine.phase

    @property
    def banned(self) -> set[Party]:
        """Returns the workers that were expelled or drained: they are not restarted and may not rejoin."""
        return self.machine.run.roster.banned

    @property
    def samples(self) -> int:
        """Returns the number of samples that all workers together have reported as trained."""
        return self.machine.run.totals.samples

    @property
    def stopping(self) -> bool:
        """True while the workers have been told to stop, and not all have left yet."""
        return self.machine.stopping

    @property
    def length(self) -> int:
        """Returns the number of parameters of the model; 0 until worker 0 has reported it."""
        return self.machine.length

    def missing(self) -> list[Party]:
        """Returns who has not answered in this phase, or not left yet; a timeout names them."""
        return self.machine.missing()

    def survives(self, who: Party) -> bool:
        """Returns True if the run continues without `who`, or already does."""
        return self.machine.survives(who)

    def why_last(self, who: Party) -> str:
        """Returns why losing `who` ends a run that otherwise survives losses, as the end of a line; else nothing."""
        return self.machine.why_last(who)

    def incarnation_of(self, who: Party) -> int:
        """Returns the number of the present incarnation of `who`, or of its last one if it is lost."""
        return self.machine.incarnation_of(who)

    # ---- inputs ------------------------------------------------------------------------------------------
    def stop(self, reason: str) -> None:
        """Ends the run for `reason`; may be called from any thread."""
        self._transport.call_later(0.0, lambda: self.stop_now(reason))

    def ended(self, who: Party, why: str) -> None:
        """Reports that the process of `who` has ended; may be called from any thread."""
        self._transport.call_later(0.0, lambda: self.ended_now(who, why))

    def started(self, who: Party, incarnation: int) -> None:
        """Reports that a process of `who` was started while others train; may be called from any thread."""
        self._transport.call_later(0.0, lambda: self.started_now(who, incarnation))

    def order(self, order: OperatorOrder, why_not: str = "") -> None:
        """Carries out what a person asks for; `why_not`: why it is refused already. May be called from any thread."""
        self._transport.call_later(0.0, lambda: self.order_now(order, why_not))

    def order_now(self, order: OperatorOrder, why_not: str = "") -> None:
        """Does `order`, on the coordinator's thread."""
        with self._input(InputKind.ORDER, order.kind, order.rank, order.factor, why_not), self._carried_out():
            self.machine.ordered(order, why_not)

    def stop_now(self, reason: str) -> None:
        """Does `stop`, on the coordinator's thread."""
        with self._input(InputKind.STOP, reason), self._carried_out():
            self.machine.stop(reason)

    def started_now(self, who: Party, incarnation: int) -> None:
        """Does `started`, on the coordinator's thread."""
        with self._input(InputKind.STARTED, who, incarnation), self._carried_out():
            self.machine.starts.started(who, incarnation)

    def ended_now(self, who: Party, why: str) -> None:
        """Does `ended`, on the coordinator's thread."""
        with self._input(InputKind.ENDED, who, why), self._carried_out():
            self.machine.starts.over(who)
            self._lost(who, why, LossCause.CLOSED)

    def lost(self, src: Party, why: str, cause: LossCause = LossCause.CLOSED) -> None:
        with self._input(InputKind.LOST, src, why, cause), self._carried_out():
            self._lost(src, why, cause)

    def failed(self, error: BaseException) -> None:
        with self._input(InputKind.FAILED, error), self._carried_out():
            self.machine.decide.fail(self._transport.me, str(error) or repr(error))

    def deliver(self, src: Party, envelope: Envelope) -> None:
        """Handles a message.

        During training an invalid message of a worker expels that worker and leaves the run alone. In any other phase,
        or from any other party, it raises ProtocolError, which closes the connection.
        """
        with self._input(InputKind.MESSAGE, src, envelope), self._carried_out():
            try:
                self._deliver(src, envelope)
            except ProtocolError as error:
                if not self.machine.expelled_for(src, error):
                    raise

    def timer_ran_out(self, timer: Timer, number: int) -> None:
        """Does what the end of a timer asks for, on the coordinator's thread."""
        with self._input(InputKind.TIMER, timer, number), self._carried_out():
            self.machine.rang(timer, number)

    def tick_rendezvous(self) -> None:
        """Counts the time of those who wait for a key of the rendezvous, on the coordinator's thread."""
        with self._input(InputKind.RENDEZVOUS):
            self._rendezvous.tick()

    def _tick_rendezvous_later(self, seconds: float) -> None:
        self._transport.call_later(seconds, self.tick_rendezvous)

    def room_for(
        self, src: Party, kind: Kind, id: int, cls: type, lengths: Sequence[int], shared: Sequence[Any]
    ) -> list[Any]:
        return self.node.room_for_look(src, kind, id, lengths, shared, longest=self.length)

    @contextlib.contextmanager
    def _carried_out(self) -> Iterator[None]:
        """Carries out what is decided within the block, also when it ends by an error.

        Carrying out a decision can cause an input at once: closing a connection reports it as lost. What that input
        decides is carried out after the present decision, not in the middle of it, so the order of actions holds.
        """
        try:
            yield
        finally:
            if not self._carrying_out:
                self._carry_out()

    def _carry_out(self) -> None:
        self._carrying_out = True
        try:
            while decision := self.machine.decide.take():
                self._decided(decision)
                self._executor.carry_out(decision)
        finally:
            self._carrying_out = False

    # ---- messages ----------------------------------------------------------------------------------------
    def _deliver(self, src: Party, envelope: Envelope) -> None:
        if not permissions.admits(self.node, src, envelope):
            return
        if envelope.kind != CONTROL:
            (self._rendezvous if isinstance(envelope.message, QUESTIONS) else self.node).deliver(src, envelope)
            return
        self.machine.heard(src, self.node.now())
        match envelope.message:
            case control.Records(lines=lines):
                for record in records_from(src, lines):
                    self.machine.recorded(record)
            case control.Hello(host=host) as hello:
                if self.phase is RunPhase.GATHERING:
                    self._rendezvous.hosts[src] = host
                self.machine.told(src, hello)
            case message:
                self.machine.told(src, message)

    # ---- losses ------------------------------------------------------------------------------------------
    def _lost(self, src: Party, why: str, cause: LossCause) -> None:
        self.machine.lost(src, why, broke_protocol=cause is LossCause.BROKE_PROTOCOL)
        if not self.survives(src):
            self._rendezvous.lost(src, why)

    def _refused(self, src: Party, why: str, strike: int) -> None:
        """Records in the trace that a message of `src` was beyond its bounds."""
        reason = f"{src}: {why}"
        record = Decided(at=self.node.now(), party="coordinator", rank=src.index, verdict="refused", reason=reason)
        self.machine.decide.record(record)
