"""The coordinator's end of the control plane: brings a run up, watches it, ends it.

    lifecycle.py         the phases of a run (the table is there), and what its parts share
    bring_up.py          from Hello to Go; and from the last Saved to Exit
    elasticity.py        workers that are lost, join late and leave while the others train
    server_recovery.py   servers that are lost and replaced
    evaluator_watch.py   the evaluator's incarnations
    ending.py            what stops a run
    decisions.py         what the parts decide, as one value, and who carries it out

Everything runs on the transport's thread. `Coordinator` hands each input (a message, a loss, a timer) to the part that
it concerns, and then has carried out what that part has decided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from paceline.core.errors import ProtocolError
from paceline.core.fault_tolerance.membership import Membership as Members
from paceline.core.fault_tolerance.membership import Patience
from paceline.core.trace import Decision
from paceline.live import party
from paceline.live.collectives.store import QUESTIONS, Rendezvous
from paceline.live.control import permissions
from paceline.live.control.trace_records import records_from
from paceline.live.coordinator import sample_leases
from paceline.live.coordinator.bring_up import BringUp, TrainingParts
from paceline.live.coordinator.decisions import (
    CoordinatorListener,
    DecisionExecutor,
    Decisions,
    FailureKind,
    ProgressReported,
    RunFailure,
    Timer,
)
from paceline.live.coordinator.elasticity import Elasticity
from paceline.live.coordinator.ending import RunEnding
from paceline.live.coordinator.evaluator_watch import EvaluatorLives
from paceline.live.coordinator.lifecycle import RunContext, RunPhase, RunRules, RunSize, RunState
from paceline.live.coordinator.planning import RunChoices
from paceline.live.coordinator.roster import ProgressTotals, RunRoster
from paceline.live.coordinator.sample_leases import Leasing, Quotas
from paceline.live.coordinator.server_recovery import Recovery, Snapshots
from paceline.live.node.node import Node
from paceline.live.party import Party
from paceline.live.protocol import control_messages as control
from paceline.live.protocol import loop_messages
from paceline.live.protocol.transport import CONTROL, Envelope, Kind, LossCause, Transport

STUCK_STEPS = 20.0


class Coordinator:
    """Brings up and ends a run."""

    def __init__(
        self,
        transport: Transport,
        node: Node,
        listener: CoordinatorListener,
        size: RunSize,
        choices: RunChoices,
        rules: RunRules,
        snapshots: Snapshots | None = None,
    ) -> None:
        """`snapshots`: what servers that are lost are replaced from; without, a lost server ends the run."""
        self.node, self._transport = node, transport
        patience = Patience(dead_s=rules.dead_after_s, stuck_s=rules.stuck_after_s, stuck_steps=STUCK_STEPS)
        roster = RunRoster(size.workers, size.servers, size.evaluator, size.not_started)
        members = Members[Party](patience)  # workers and servers, once training has started
        state = RunState(model_on_servers=rules.model_on_servers)
        self._run = run = RunContext(state, roster, ProgressTotals(), members, Decisions(), node.now)
        decide = run.decide
        self._rendezvous = Rendezvous(transport, roster.workers)
        self._leasing = leasing = Leasing(
            decide.send, decide.record, node.now, rules.done, on_false_claim=node.admission.strike
        )
        self._recovery = recovery = Recovery(run, snapshots)
        self._ending = ending = RunEnding(run, rules.stop, recovery, leasing)
        quotas = Quotas(rules.stop, run.totals)
        self._elasticity = Elasticity(run, recovery, ending, leasing, quotas, rules.min_workers)
        self._evaluator = EvaluatorLives(run, recovery, ending, rules.dead_after_s)
        parts = TrainingParts(self._elasticity, self._evaluator, leasing, self._rendezvous)
        self._bring_up = BringUp(run, rules, choices, parts, snapshots, listener.recorded)
        self._executor = DecisionExecutor(
            transport,
            node,
            listener,
            snapshots,
            on_timer=self._timer,
            on_clock=self._bring_up.begin_training,
        )
        self._carrying_out = False
        node.admission.report_to(expel=self._expel, on_strike=self._refused)

    def open(self) -> str:
        """Begins; returns the address for the others."""
        self._transport.open(self)
        return self._transport.address

    @property
    def phase(self) -> RunPhase:
        return self._run.state.phase

    @property
    def banned(self) -> set[Party]:
        """Workers that nobody starts again, or lets in."""
        return self._run.roster.banned

    @property
    def samples(self) -> int:
        """Trained by all workers together, as far as reported."""
        return self._run.totals.samples

    @property
    def stopping(self) -> bool:
        """True while the workers have been told to stop, and not all have left yet."""
        return self._run.state.stopping and self._run.state.training

    @property
    def length(self) -> int:
        """Of the model; 0 until it is known."""
        return self._run.state.length

    def missing(self) -> list[Party]:
        """Who has not answered in this phase, or not left yet."""
        return self._bring_up.missing()

    def survives(self, who: Party) -> bool:
        """Does the run go on without `who`? Or has it already?"""
        return self._evaluator.survives() if who == party.EVALUATOR else self._elasticity.survives(who)

    def why_last(self, who: Party) -> str:
        """Why the run could otherwise go on without it, but ends; for the end of a line."""
        return self._elasticity.why_last(who)

    def incarnation_of(self, who: Party) -> int:
        """Its present incarnation, or its last."""
        return self._evaluator.incarnation if who == party.EVALUATOR else self._run.members.incarnation(who)

    # ---- inputs ------------------------------------------------------------------------------------------
    def stop(self, reason: str) -> None:
        """Ends the run; from any thread."""
        self._soon(lambda: self._ending.stop(reason))

    def ended(self, who: Party, why: str) -> None:
        """The process of `who` has ended; from any thread."""
        self._soon(lambda: self._lost(who, why, LossCause.CLOSED))

    def _soon(self, act: Callable[[], None]) -> None:
        def on_thread() -> None:
            try:
                act()
            finally:
                self._carry_out()

        self._transport.call_later(0.0, on_thread)

    def lost(self, src: Party, why: str, cause: LossCause = LossCause.CLOSED) -> None:
        try:
            self._lost(src, why, cause)
        finally:
            self._carry_out()

    def failed(self, error: BaseException) -> None:
        self._run.decide.fail(self._transport.me, str(error) or repr(error))
        self._carry_out()

    def deliver(self, src: Party, envelope: Envelope) -> None:
        """While training goes on, what a worker says that cannot be is its own end, and nobody else's."""
        try:
            self._deliver(src, envelope)
        except ProtocolError as error:
            if src.kind != "worker" or not self._run.state.training:
                raise
            self.node.admission.strike(src, str(error), at_once=True)
        finally:
            self._carry_out()

    def room_for(
        self, src: Party, kind: Kind, id: int, cls: type, lengths: Sequence[int], shared: Sequence[Any]
    ) -> list[Any]:
        return self.node.room_for_look(src, kind, id, lengths, shared, longest=self.length)

    def _timer(self, timer: Timer, number: int) -> None:
        match timer:
            case Timer.MEMBERS:
                self._elasticity.look()
            case Timer.EVALUATOR:
                self._evaluator.look()
            case Timer.SERVERS_BACK:
                self._recovery.still_waiting(number)
            case Timer.TIME_LIMIT:
                self._ending.stop("seconds")
        self._carry_out()

    def _carry_out(self) -> None:
        """At the end of each input, also where it ends by an error: carries out what was decided within it.

        An input may come while another one's decision is carried out (a connection that is closed is lost at once):
        what it decides is carried out after that.
        """
        if self._carrying_out:
            return
        self._carrying_out = True
        try:
            while decision := self._run.decide.take():
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
            case control.Ready() | control.Prepared() | control.Saved() as answer:
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
        if src.kind == "server" and self._run.state.training:  # it makes no steps
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
            case control.Left(reason=reason, home=home):
                self._left(src, reason, home=home)
            case control.Unfit(rank=rank, reason=reason):
                self._expel(rank, reason)
                self._bring_up.go_on()  # where the run ends, it is not waited for
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
        """What a loop of the user's own asks for, or says of the run."""
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
            total = control.Total(samples=run.totals.samples, epochs=self._leasing.epochs)
            run.decide.send([src, *run.roster.evaluator], total)
            self._ending.stop_at_epochs()

    def _left(self, src: Party, reason: str, *, home: bool) -> None:
        """`home`: it wants to end at once."""
        self._elasticity.left(src, reason, home=home)
        if not self._run.roster.training:
            self._ending.stop(reason)
            self._ending.finish()

    # ---- losses and failures -----------------------------------------------------------------------------
    def _lost(self, src: Party, why: str, cause: LossCause) -> None:
        state = self._run.state
        if cause is LossCause.BROKE_PROTOCOL and src.kind == "worker" and state.training:
            self.node.admission.strike(src, why, at_once=True)
        if src == party.EVALUATOR and self.survives(src):
            if state.phase is RunPhase.FINISHING and self._bring_up.has_answered(src):
                self._run.roster.banned.add(src)  # it has saved the last model
            self._evaluator.lost(why)
            return
        if not self.survives(src):
            self._rendezvous.lost(src, why)
        self._elasticity.lost(src, why)
        if state.phase is RunPhase.FINISHING:
            self._bring_up.go_on()

    def _failed(self, src: Party, failed: control.Failed) -> None:
        """The failure of a worker whose claims were refused is its own end, as if it had been killed.

        So is that of any worker once all have trained to their end: it fails at the last model or at its files, and the
        others can do without it. Any other failure ends the run: mostly it is a bug in the script, which all have.
        """
        refused = self.node.admission.strikes[src] or src in self._run.roster.banned
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
        """The trace has it: what `src` said was beyond its bounds."""
        reason = f"{src}: {why}"
        record = Decision(at=self.node.now(), party="coordinator", rank=src.index, verdict="refused", reason=reason)
        self._run.decide.record(record)
