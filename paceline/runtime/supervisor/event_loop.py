"""The event loop of the thread that supervises a run: what it does about each event, until the run is over.

event                               then
Started                             the header is shown; absent workers are asked for, if they come by themselves
Grow                                the next absent worker is started
an order in RUN/orders              the coordinator is told, or a worker is started
MemberEvent, lost                   its process is killed; a server's successor is started
ProcessEnded, the run survives it   the coordinator is told; the next incarnation is started now, later or never
                                    (`core/supervisor/processes.py`)
ProcessEnded, the run is over       nothing
ProcessEnded, otherwise             RunFailed, after GRACE_SECONDS in which other failures are gathered
Failure                             the same
Interrupted or Taken, in training   training stops; the rest may take INTERRUPT_SECONDS
Interrupted again, or earlier       RunFailed
Finished                            returns, once nobody of the launcher's is at work
"""

from __future__ import annotations

import dataclasses
import time

from paceline.config import Config
from paceline.core.coordination import party
from paceline.core.coordination.decisions import FailureKind
from paceline.core.coordination.lifecycle import RunPhase
from paceline.core.coordination.operator_orders import CHECKPOINT, GROW, LEARNING_RATE, OperatorOrder
from paceline.core.coordination.party import Party
from paceline.live.coordinator.coordinator import Coordinator
from paceline.observe.runs.summary import TARGET_LOSS
from paceline.observe.terminal.progress import ProgressDisplay
from paceline.runtime.spec.launcher import ProcessEnded
from paceline.runtime.supervisor.artifacts import RunArtifacts
from paceline.runtime.supervisor.events import (
    Event,
    EventQueue,
    Failure,
    Finished,
    Grow,
    Interrupted,
    LossReached,
    MemberEvent,
    Started,
    StatusLine,
    Taken,
)
from paceline.runtime.supervisor.incarnations import PartyIncarnations
from paceline.runtime.supervisor.messages import LogHint
from paceline.runtime.supervisor.phase_deadlines import INTERRUPT_SECONDS, Deadline, RunFailed
from paceline.runtime.supervisor.root_cause import root_of

GRACE_SECONDS = 0.4  # between the first sign of a failure and the search for its cause
SHOW_SECONDS = 0.25
"""Seconds between two views of the run."""
ORDERS_SECONDS = 0.25
"""Seconds between two looks for what a person asks of the run."""


def not_started_at_first(config: Config) -> list[Party]:
    """Returns the workers that join while training goes on."""
    cluster = config.cluster
    return [party.worker(rank) for rank in range(cluster.beginning, cluster.workers)]


class EventLoop:
    """Waits for events and carries out what follows. `run` is called once."""

    def __init__(
        self,
        config: Config,
        coordinator: Coordinator,
        incarnations: PartyIncarnations,
        events: EventQueue,
        artifacts: RunArtifacts,
        view: ProgressDisplay,
        *,
        accept_joins: bool,
    ) -> None:
        """`accept_joins`: all workers that are absent at first are asked for when training begins."""
        self._coordinator, self._incarnations, self._events = coordinator, incarnations, events
        self._artifacts, self._view = artifacts, view
        self._absent, self._accept_joins = not_started_at_first(config), accept_joins
        self._keeps_checkpoints = config.checkpoint.every > 0
        self._in_ranks = any(config.ranks_of(rank) > 1 for rank in range(config.cluster.workers))
        self._orders_due = 0.0
        self._deadline = Deadline(coordinator, start_s=config.cluster.connect_timeout, hint=LogHint(config.run.out))
        self._finished = False
        self._signal = ""
        self._taken = False

    @property
    def signal(self) -> str:
        """Returns the signal that this process was sent, or ""."""
        return self._signal

    @property
    def interrupted(self) -> str:
        """Returns the signal that ended the run, or ""; SIGTERM where all hosts were taken away."""
        return self._signal or ("SIGTERM" if self._taken else "")

    def run(self) -> None:
        """Handles events until the run is over and no process of the launcher's is at work of its own. Raises
        RunFailed."""
        while not self._finished or self._incarnations.busy():
            event = self._next(SHOW_SECONDS)
            self._artifacts.status.write(self._coordinator.phase.value)
            if isinstance(event, ProcessEnded):
                self._ended(event)
            elif event is not None:
                self._handle(event)
            elif self._coordinator.phase in (RunPhase.TRAINING, RunPhase.FINISHING):
                self._view.show(self._artifacts.statistics.snapshot(self._coordinator.node.now()))
            if self._finished and isinstance(event, Interrupted | Taken):
                return
            if time.monotonic() >= self._orders_due:  # and not at each event: to look reads a folder
                self._orders_due = time.monotonic() + ORDERS_SECONDS
                for order in self._artifacts.orders.take():
                    self._carry_out(order)
            self._incarnations.start_due(trains=self._trains, needs_evaluator=self._needs_evaluator)
            if not self._finished:
                self._deadline.check()
            elif self._deadline.expired:
                return

    def await_evaluator(self, seconds: float) -> None:
        """Waits up to `seconds` for the evaluator's end: the run has failed, and it saves the model."""
        until = time.monotonic() + seconds
        while party.EVALUATOR in self._incarnations.up and (left := until - time.monotonic()) > 0:
            self._next(min(left, 0.05))

    def show_rest(self) -> None:
        """Shows lines that came at the very end, such as that the trace could not be closed."""
        while event := self._next(0.0):
            if isinstance(event, StatusLine):
                self._view.begin((event.line,))

    def _next(self, seconds: float) -> Event | ProcessEnded | None:
        """Returns the next event within `seconds`, or None; an ended process is noted as such, whatever follows."""
        event = self._events.next(seconds)
        if isinstance(event, ProcessEnded):
            self._incarnations.has_ended(event)
        return event

    # ---- what follows from an event ----------------------------------------------------------------------
    def _handle(self, event: Event) -> None:
        """Carries out what follows from an event. Raises RunFailed."""
        match event:
            case Started(notes=notes):
                self._view.begin(notes)
                for _ in self._absent if self._accept_joins else ():
                    self._events.put(Grow())
            case Grow():
                self._grow()
            case MemberEvent(who=who, incarnation=incarnation, line=line, lost=lost):
                self._view.begin((line,))
                if lost:
                    self._incarnations.lost(who, incarnation)
            case StatusLine(line=line):
                self._view.begin((line,))
            case LossReached():
                self._coordinator.stop(TARGET_LOSS)
            case Finished():
                self._finished = True
            case Failure():
                self._fail(event)
            case Interrupted() | Taken():
                self._called_off(event)

    def _ended(self, event: ProcessEnded) -> None:
        """Handles the end of a process. Raises RunFailed if the run cannot go on without it."""
        who, over = event.who, self._coordinator.phase is RunPhase.OVER
        if self._survives(who):
            self._coordinator.ended(who, event.why or self._too_early(who))
            self._incarnations.ended(who, trains=self._trains, banned=self._coordinator.banned)
        elif over and (who.kind != "worker" or not event.why):
            pass  # it has done all it had to
        else:
            self._fail(self._death(event))

    def _called_off(self, event: Interrupted | Taken) -> None:
        """Ends the training in order. Raises RunFailed at a second signal, and where there is nothing yet to be ended
        in order."""
        second = False
        match event:
            case Interrupted(signal=signal):
                second, self._signal = bool(self._signal), signal
            case Taken(why=why):
                self._taken, signal = True, "SIGTERM"
                self._view.begin((why,))
        if self._finished:
            return
        if second or self._coordinator.phase not in (RunPhase.TRAINING, RunPhase.FINISHING, RunPhase.OVER):
            raise RunFailed(f"interrupted by {signal}")
        self._coordinator.stop(f"interrupted by {signal}")
        self._deadline.at_most(INTERRUPT_SECONDS[signal])

    def _grow(self) -> str:
        """Starts the next absent worker, or says, and returns, why none is added."""
        free = bool(self._absent)
        why_not = "nobody trains now" if not self._trains else "" if free else "all places of --workers are taken"
        if why_not:
            self._view.begin((f"no worker is added: {why_not}",))
        else:
            self._incarnations.next(self._absent.pop(0))
        return why_not

    def _carry_out(self, order: OperatorOrder) -> None:
        """Passes on what a person asks for. What this process knows alone is decided here; the coordinator records
        it."""
        why_not = ""
        if order.kind == GROW:
            why_not = self._grow()
        elif order.kind == CHECKPOINT and not self._keeps_checkpoints:
            why_not = "the run keeps no checkpoints: it was started with --checkpoint-every 0"
        elif order.kind == LEARNING_RATE and self._in_ranks:
            why_not = "in workers of several processes each has an optimizer of its own"
        self._coordinator.order(order, why_not)

    def _fail(self, first: Failure) -> None:
        """Gathers what else went wrong in the same moment. Raises RunFailed with the root cause.

        A crash is often heard of last: others report lost connections before the kernel reports the dead process.
        """
        failures = [first]
        deadline = time.monotonic() + GRACE_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            match self._next(min(left, 0.05)):
                case ProcessEnded(who=who, why=why) as ended if why and not self._survives(who):
                    failures.append(self._death(ended))
                case Failure() as another:
                    failures.append(another)
        raise RunFailed(root_of([self._with_refusal(failure) for failure in failures]))

    def _with_refusal(self, failure: Failure) -> Failure:
        """Returns the failure; where it is that somebody has not come back, with why its last process was refused."""
        if failure.kind is FailureKind.ENDED:  # its cause says so already
            return failure
        return dataclasses.replace(failure, cause=f"{failure.cause}{self._incarnations.why_absent(failure.who)}")

    # ---- how the run stands ------------------------------------------------------------------------------
    @property
    def _trains(self) -> bool:
        """Returns True while workers train and nobody has stopped them."""
        return self._coordinator.phase is RunPhase.TRAINING and not self._coordinator.stopping

    @property
    def _needs_evaluator(self) -> bool:
        """Returns True if the evaluator may still have something to do."""
        going_on = self._coordinator.phase in (RunPhase.TRAINING, RunPhase.FINISHING)
        return going_on and party.EVALUATOR not in self._coordinator.banned

    def _survives(self, who: Party) -> bool:
        """Returns True if the run goes on, with what is started in the place of `who`."""
        return self._coordinator.survives(who) and not self._incarnations.hopeless(who, trains=self._trains)

    def _too_early(self, who: Party) -> str:
        """Returns what a process did that ended without a reason of its own."""
        what = "it joined the run" if self._coordinator.phase is RunPhase.GATHERING else "the run was over"
        return f"{who} ended before {what}"

    def _death(self, ended: ProcessEnded) -> Failure:
        """Returns the failure that the end of a process means, with its steps and the last thing it was asked for."""
        who, steps = ended.who, self._artifacts.statistics.steps(ended.who)
        after = f" after {steps} steps" if steps else ""
        cause = f"{ended.why or self._too_early(who)}{after}{self._coordinator.why_last(who)}"
        # Its end may be heard of before that of the coordinator, which is the cause then.
        kind = FailureKind.LOST_ANOTHER if ended.lost_coordinator else FailureKind.ENDED
        return Failure(who=who, cause=cause, kind=kind)
