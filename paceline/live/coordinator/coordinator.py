"""The coordinator's end of the control plane: brings a run up, watches it, ends it.

    bring_up.py          from Hello to Go; and from the last Saved to Exit
    evaluator_watch.py   the evaluator's incarnations
    executor.py          carries out what the parts decide

    core/coordination/
    lifecycle.py         the phases of a run (the table is there), and what its parts share
    elasticity.py        workers that are lost, join late and leave while the others train
    server_recovery.py   servers that are lost and replaced
    ending.py            what stops a run
    operator_orders.py   what a person asks of it while it trains
    sample_leases.py     which worker trains which samples
    roster.py            who takes part, and the progress of each worker
    decisions.py         what the parts decide, as one value
    inputs.py            what comes in, and who observes that and the decisions

Everything runs on the transport's thread. `Coordinator` hands each input to the part that it concerns:

    input                       from                        part
    Hello                       a party                     bring_up, or elasticity / evaluator_watch during training
    Ready, Prepared, Saved      a party                     bring_up, or elasticity / server_recovery during training
    Progress, Records           workers, evaluator          roster
    EvaluationReport            the evaluator               ending
    Left, Aware, Unfit          workers, servers            elasticity
    SamplesResolved, Want, ...  workers, the first server   sample_leases
    a lost connection           the transport               elasticity, evaluator_watch; bring_up before training
    a timer                     the transport               whoever started it (`timer_ran_out`)

A part sends nothing itself. It adds actions to `Decisions`, which are carried out when the input is done.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import loop_messages, party, sample_leases
from paceline.core.coordination.decisions import Decisions, FailureKind, ProgressReported, RunFailure, Timer
from paceline.core.coordination.elasticity import Elasticity
from paceline.core.coordination.ending import RunEnding
from paceline.core.coordination.lifecycle import RunContext, RunPhase, RunRules, RunSize, RunState
from paceline.core.coordination.operator_orders import OperatorOrder, OperatorOrders
from paceline.core.coordination.party import Party
from paceline.core.coordination.roster import ProgressTotals, RunRoster
from paceline.core.coordination.sample_leases import Leasing, Quotas
from paceline.core.coordination.server_recovery import Recovery, Snapshots
from paceline.core.errors import ProtocolError
from paceline.core.fault_tolerance.membership import Membership, Patience
from paceline.core.trace import Decided
from paceline.live.collectives.store import QUESTIONS, Rendezvous
from paceline.live.control import permissions
from paceline.live.control.trace_records import records_from
from paceline.live.coordinator.bring_up import BringUp, TrainingParts
from paceline.live.coordinator.evaluator_watch import EvaluatorLives
from paceline.live.coordinator.executor import CoordinatorListener, DecisionExecutor
from paceline.live.coordinator.inputs import NO_OBSERVER, CoordinatorObserver, InputKind
from paceline.live.coordinator.planning import RunChoices
from paceline.live.node.node import Node
from paceline.live.protocol.transport import CONTROL, Envelope, Kind, LossCause, Transport

STUCK_STEPS = 20.0
"""A worker counts as stuck when one step takes as long as this many of its usual ones (and `stuck_after_s`)."""


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
        patience = Patience(dead_s=rules.dead_after_s, stuck_s=rules.stuck_after_s, stuck_steps=STUCK_STEPS)
        roster = RunRoster(size.workers, size.servers, size.evaluator, size.not_started)
        members = Membership[Party](patience)  # workers and servers, once training has started
        state = RunState(model_on_servers=rules.model_on_servers)
        self._run = run = RunContext(state, roster, ProgressTotals(), members, Decisions(), node.now)
        decide = run.decide
        self._rendezvous = Rendezvous(transport, roster.workers, self._tick_rendezvous_later)
        self._leasing = leasing = Leasing(
            decide.send, decide.record, node.now, rules.done, on_false_claim=node.message_checks.strike
        )
        self._recovery = recovery = Recovery(run, snapshots)
        self._ending = ending = RunEnding(run, rules.stop, recovery, leasing)
        quotas = Quotas(rules.stop, run.totals)
        self._elasticity = Elasticity(run, recovery, ending, leasing, quotas, rules.min_workers)
        self._operator = OperatorOrders(run, self._elasticity, ending)
        self._evaluator = EvaluatorLives(run, recovery, ending, rules.dead_after_s)
        parts = TrainingParts(self._elasticity, ending, self._evaluator, self._rendezvous)
        self._bring_up = BringUp(run, rules, choices, parts, snapshots, decide.record)
        self._executor = DecisionExecutor(
            transport,
            node,
            listener,
            snapshots,
            on_timer=self.timer_ran_out,
            on_clock=self._bring_up.begin_training,
        )
        self._carrying_out = False
        node.message_checks.report_to(expel=self._expel, on_strike=self._refused)

    def open(self) -> str:
        """Opens the transport and returns the address that the other processes connect to."""
        self._transport.open(self)
        return self._transport.address

    @property
    def phase(self) -> RunPhase:
        return self._run.state.phase

    @property
    def banned(self) -> set[Party]:
        """Returns the workers that were expelled or drained: they are not restarted and may not rejoin."""
        return self._run.roster.banned

    @property
    def samples(self) -> int:
        """Returns the number of samples that all workers together have reported as trained."""
        return self._run.totals.samples

    @property
    def stopping(self) -> bool:
        """True while the workers have been told to stop, and not all have left yet."""
        return self._run.state.stopping and self._run.state.training

    @property
    def length(self) -> int:
        """Returns the number of parameters of the model; 0 until worker 0 has reported it."""
        return self._run.state.length

    def missing(self) -> list[Party]:
        """Returns who has not answered in this phase, or not left yet; a timeout names them."""
        return self._bring_up.missing()

    def survives(self, who: Party) -> bool:
        """Returns True if the run continues without `who`, or already does."""
        return self._evaluator.survives() if who == party.EVALUATOR else self._elasticity.survives(who)

    def why_last(self, who: Party) -> str:
        """Returns why losing `who` ends a run that otherwise survives losses, as the end of a line; else nothing."""
        return self._elasticity.why_last(who)

    def incarnation_of(self, who: Party) -> int:
        """Returns the number of the present incarnation of `who`, or of its last one if it is lost."""
        return self._evaluator.incarnation if who == party.EVALUATOR else self._run.members.incarnation(who)

    # ---- inputs ------------------------------------------------------------------------------------------
    def stop(self, reason: str) -> None:
        """Ends the run for `reason`; may be called from any thread."""
        self._transport.call_later(0.0, lambda: self.stop_now(reason))

    def ended(self, who: Party, why: str) -> None:
        """Reports that the process of `who` has ended; may be called from any thread."""
        self._transport.call_later(0.0, lambda: self.ended_now(who, why))

    def order(self, order: OperatorOrder, why_not: str = "") -> None:
        """Carries out what a person asks for; `why_not`: why it is refused already. May be called from any thread."""
        self._transport.call_later(0.0, lambda: self.order_now(order, why_not))

    def order_now(self, order: OperatorOrder, why_not: str = "") -> None:
        """Does `order`, on the coordinator's thread."""
        with self._input(InputKind.ORDER, order.kind, order.rank, order.factor, why_not), self._carried_out():
            self._operator.take(order, why_not)

    def stop_now(self, reason: str) -> None:
        """Does `stop`, on the coordinator's thread."""
        with self._input(InputKind.STOP, reason), self._carried_out():
            self._ending.stop(reason)

    def ended_now(self, who: Party, why: str) -> None:
        """Does `ended`, on the coordinator's thread."""
        with self._input(InputKind.ENDED, who, why), self._carried_out():
            self._lost(who, why, LossCause.CLOSED)

    def lost(self, src: Party, why: str, cause: LossCause = LossCause.CLOSED) -> None:
        with self._input(InputKind.LOST, src, why, cause), self._carried_out():
            self._lost(src, why, cause)

    def failed(self, error: BaseException) -> None:
        with self._input(InputKind.FAILED, error), self._carried_out():
            self._run.decide.fail(self._transport.me, str(error) or repr(error))

    def deliver(self, src: Party, envelope: Envelope) -> None:
        """Handles a message.

        During training an invalid message of a worker expels that worker and leaves the run alone. In any other phase,
        or from any other party, it raises ProtocolError, which closes the connection.
        """
        with self._input(InputKind.MESSAGE, src, envelope), self._carried_out():
            try:
                self._deliver(src, envelope)
            except ProtocolError as error:
                if src.kind != "worker" or not self._run.state.training:
                    raise
                self.node.message_checks.strike(src, str(error), at_once=True)

    def timer_ran_out(self, timer: Timer, number: int) -> None:
        """Does what the end of a timer asks for, on the coordinator's thread."""
        with self._input(InputKind.TIMER, timer, number), self._carried_out():
            match timer:
                case Timer.MEMBERS:
                    self._elasticity.look()
                case Timer.EVALUATOR:
                    self._evaluator.look()
                case Timer.SERVERS_BACK:
                    self._recovery.still_waiting(number)
                case Timer.TIME_LIMIT:
                    self._ending.time_is_over()

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
            while decision := self._run.decide.take():
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
        self._heard(src)
        match envelope.message:
            case control.Progress() as progress:  # first: by far the most
                self._progressed(src, progress)
            case control.Hello() as hello:
                self._hello(src, hello)
            case control.Ready() as ready if src in self._run.roster.joining:
                self._elasticity.ready(src, ready)
            case control.Prepared() as prepared if self.phase in (RunPhase.TRAINING, RunPhase.FINISHING):
                self._recovery.prepared(src, prepared)
                if not self._recovery.under_way:
                    self._leasing.servers_are_back(
                        {who.index: self.incarnation_of(who) for who in self._run.roster.training}
                    )
            case control.Saved():
                self._ending.saved(src)
            case control.Ready() | control.Prepared() as answer:
                self._bring_up.answered(src, answer)
            case control.Failed() as failed:
                self._failed(src, failed)
            case message:
                self._while_training(src, message)

    def _heard(self, src: Party) -> None:
        now, members = self.node.now(), self._run.members
        members.heard(now, src)
        if src == party.EVALUATOR:
            self._evaluator.heard()
        if src.kind == "server" and self._run.state.training:  # it makes no steps, so it can be silent but not stuck
            members.progressed(now, src, 0, waits=True, step_s=math.inf)

    def _hello(self, src: Party, hello: control.Hello) -> None:
        if self.phase is RunPhase.GATHERING:
            self._bring_up.joined(src, hello)
        elif src == party.EVALUATOR:
            self._evaluator.hello(hello)
        else:
            self._elasticity.hello(src, hello)

    def _while_training(self, src: Party, message: Any) -> None:
        match message:
            case control.Aware(view=view):
                self._elasticity.carry_out(self._run.members.acknowledged(self.node.now(), src, view))
            case control.Records(lines=lines):
                for record in records_from(src, lines):
                    self._recovery.recorded(record)
                    self._run.decide.record(record)
            case control.EvaluationReport() as judged:
                self._ending.evaluated(judged)
            case control.Left(reason=reason, drained=drained):
                self._left(src, reason, drained=drained)
            case control.Unfit(rank=rank, reason=reason):
                self._expel(rank, reason)
                self._ending.go_on()  # where the run ends, it is not waited for
            case control.Beat():
                pass
            case control.Ask() as ask:
                quota = self._elasticity.quotas.quota(src.index, ask, training=len(self._run.roster.training))
                self._run.decide.send([src], control.Quota(samples=quota))
            case loop_messages.Draw() | loop_messages.Reported() | loop_messages.EndRun() as said:
                self._loop_said(src, said)
            case said if isinstance(said, sample_leases.MESSAGES):
                self._leasing.heard(src, self.incarnation_of(src), said)
                self._ending.stop_at_epochs()
            case other:
                raise ProtocolError(f"{src} sent {type(other).__name__}")

    def _loop_said(self, src: Party, said: loop_messages.Draw | loop_messages.Reported | loop_messages.EndRun) -> None:
        """Handles what a user's own training loop asks for (samples) or reports (an evaluation, the end of the run)."""
        run = self._run
        match said:
            case loop_messages.Draw():
                drawn = self._elasticity.quotas.draw(src.index, said, training=len(run.roster.training))
                run.decide.send([src], drawn)
            case loop_messages.Reported(accuracy=accuracy, loss=loss):
                at, samples = run.now(), run.totals.samples
                self._ending.evaluated(
                    control.EvaluationReport(at=at, samples=samples, accuracy=accuracy, loss=loss, seconds=0.0)
                )
            case loop_messages.EndRun(reason=reason):
                self._ending.stop(f"{reason} ({src})")

    def _progressed(self, src: Party, progress: control.Progress) -> None:
        run = self._run
        if run.state.training:
            steps = progress.steps - progress.steps_before
            usual = progress.seconds_computing / max(1, steps)
            run.members.progressed(run.now(), src, steps, waits=not progress.seconds_at_batch, step_s=usual)
        run.decide.add(ProgressReported(src.index, run.totals.told(src.index, progress)))
        if run.state.training:
            total = control.Total(
                samples=run.totals.samples, epochs=self._leasing.epochs, exchanges=run.totals.exchanges
            )
            run.decide.send([src, *run.roster.evaluator], total)
            self._ending.stop_at_epochs()

    def _left(self, src: Party, reason: str, *, drained: bool) -> None:
        """Takes a worker out of training. `drained`: it is being drained and exits at once."""
        self._elasticity.left(src, reason, drained=drained)
        self._ending.left(reason)

    # ---- losses and failures -----------------------------------------------------------------------------
    def _lost(self, src: Party, why: str, cause: LossCause) -> None:
        state = self._run.state
        if cause is LossCause.BROKE_PROTOCOL and src.kind == "worker" and state.training:
            self.node.message_checks.strike(src, why, at_once=True)
        if src == party.EVALUATOR and self.survives(src):
            if state.phase is RunPhase.FINISHING and self._ending.has_saved(src):
                self._run.roster.banned.add(src)  # it has saved the last model
            self._evaluator.lost(why)
            return
        if not self.survives(src):
            self._rendezvous.lost(src, why)
        self._elasticity.lost(src, why)
        self._ending.go_on()

    def _failed(self, src: Party, failed: control.Failed) -> None:
        """Handles a party's report of its own error: the party is lost, or the run fails.

        sender                                   then
        worker whose claims were rejected        it is lost, as if it had been killed
        worker, after training has finished      it is lost; the others can save the model without it
        worker that is still joining             it is lost, and may try again
        anybody else                             the run fails: mostly it is a bug in the script, which all have
        """
        refused = self.node.message_checks.strikes[src] or src in self._run.roster.banned
        ending = self.phase is RunPhase.FINISHING
        alone = src.kind == "worker" and (refused or ending) and self.survives(src)
        if alone or src in self._run.roster.joining:
            self._lost(src, failed.cause, LossCause.CLOSED)
        else:
            kind = FailureKind.LOST_ANOTHER if failed.lost_another else FailureKind.ERROR
            self._run.decide.add(RunFailure(src, failed.cause, failed.details, kind))

    def _expel(self, rank: int, why: str) -> None:
        self._elasticity.expel(party.worker(rank), why)

    def _refused(self, src: Party, why: str, strike: int) -> None:
        """Records in the trace that a message of `src` was beyond its bounds."""
        reason = f"{src}: {why}"
        record = Decided(at=self.node.now(), party="coordinator", rank=src.index, verdict="refused", reason=reason)
        self._run.decide.record(record)
