"""The coordinator of a run, live or simulated: which input concerns which of its parts.

    input                       from                        part
    Hello                       a party                     bring_up, or elasticity / evaluator_watch during training
    Ready, Prepared             a party                     bring_up, or elasticity / server_recovery during training
    Saved                       a party                     ending
    Progress                    workers                     roster, membership, and standstill
    EvaluationReport            the evaluator               ending
    Left, Aware, Unfit          workers, servers            elasticity
    OwnResult                   workers                     own_results
    SamplesResolved, Want, ...  workers, the first server   sample_leases
    Failed                      a party                     it is lost, or the run fails (`_failed`)
    an order                    the operator                operator_orders
    the start of a process      the driver                  process_starts
    a lost party                the driver                  elasticity, evaluator_watch; before training the run fails
    a timer                     the driver                  whoever started it (`rang`)

Nothing here has a clock, a thread or a socket. A part adds actions to `decide`; the driver takes them out when an input
has been dealt with, and carries them out (`paceline.core.coordination.decisions`). `paceline.live.coordinator` drives
live runs, and `paceline.sim.faults` simulated ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Protocol

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import loop_messages, party, sample_leases
from paceline.core.coordination.decisions import Decisions, FailureKind, ProgressReported, RunFailure, Timer
from paceline.core.coordination.elasticity import ALL_WAS_TRAINED, Elasticity
from paceline.core.coordination.ending import RunEnding
from paceline.core.coordination.lifecycle import RunContext, RunPhase, RunRules, RunSize, RunState
from paceline.core.coordination.operator_orders import OperatorOrder, OperatorOrders
from paceline.core.coordination.party import Party
from paceline.core.coordination.roster import ProgressTotals, RunRoster
from paceline.core.coordination.sample_leases import Leasing, Quotas, ShareRequests
from paceline.core.coordination.server_recovery import Recovery, Snapshots
from paceline.core.coordinator.bring_up import TRAINING_AND_AFTER, BringUp, RunPlanner, TrainingParts
from paceline.core.coordinator.evaluator_watch import EvaluatorLives
from paceline.core.coordinator.own_results import OwnResultStrikes
from paceline.core.coordinator.process_starts import ProcessStarts
from paceline.core.coordinator.standstill import Standstill
from paceline.core.errors import ProtocolError
from paceline.core.fault_tolerance.membership import Membership, Patience
from paceline.core.trace import Record
from paceline.core.validation.majority import Majority

STUCK_STEPS = 20.0
"""A worker counts as stuck when one step takes as long as this many of its usual ones (and `stuck_after_s`)."""
SAME_FAILURE_S = 600.0
"""Seconds within which most workers have to fail in the same way, for the run to fail."""
NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
"""What may differ between two reports of the same error."""
SHARED_MAX = 1000
"""Names under which loops may share values; further ones are discarded."""


class StrikeCounter(Protocol):
    """Counts the false claims of workers, and has one expelled at its third (`CoordinatorMachine.expel`)."""

    def strike(self, who: Party, why: str, *, at_once: bool = False) -> None:
        """Counts one. `at_once`: it suffices to expel a worker."""

    def refused(self, who: Party) -> bool:
        """Returns True if any claim of `who` was false."""


class CoordinatorMachine:
    """Decides for one run. Its driver hands in each input, then carries out what `decide` has taken up.

    run   what the parts share: how far the run is, who takes part, what was decided
    """

    def __init__(
        self,
        size: RunSize,
        rules: RunRules,
        planner: RunPlanner,
        strikes: StrikeCounter,
        snapshots: Snapshots | None,
        now: Callable[[], float],
    ) -> None:
        """snapshots: those from which a lost server is replaced; None where its loss ends the run.
        now: returns seconds since training started.
        """
        patience = Patience(dead_s=rules.dead_after_s, stuck_s=rules.stuck_after_s, stuck_steps=STUCK_STEPS)
        roster = RunRoster(size.workers, size.servers, size.evaluator, size.not_started)
        members = Membership[Party](patience)  # workers and servers, once training has started
        state = RunState(model_on_servers=rules.model_on_servers)
        self.run = run = RunContext(state, roster, ProgressTotals(rules.stop.behind), members, Decisions(), now)
        self.decide, self._rules, self._strikes = run.decide, rules, strikes
        lease_parts = run.decide.send, run.decide.record, now, rules.done
        self.leasing = Leasing(*lease_parts, on_false_claim=strikes.strike, here=roster.ranks)
        self.recovery = Recovery(run, snapshots)
        self.ending = RunEnding(run, rules.stop, self.recovery, self.leasing)
        quotas = Quotas(rules.stop, run.totals, roster.ranks, rules.done)
        self.elasticity = Elasticity(
            run, self.recovery, self.ending, self.leasing, quotas, rules.min_workers, rules.shares
        )
        self.own_results = OwnResultStrikes(run, self.elasticity, rules.own_results)
        self._standstill = Standstill(run)
        self._operator = OperatorOrders(run, self.elasticity, self.ending)
        self._evaluator = EvaluatorLives(run, self.recovery, self.ending, rules.dead_after_s)
        self.starts = ProcessStarts(run, rules.start_after_s)
        self._failures: Majority[str] = Majority(SAME_FAILURE_S)
        parts = TrainingParts(self.elasticity, self.ending, self._evaluator)
        self._bring_up = BringUp(run, planner, parts, snapshots)

    # ---- looking at it -----------------------------------------------------------------------------------
    @property
    def phase(self) -> RunPhase:
        return self.run.state.phase

    @property
    def stopping(self) -> bool:
        """Returns True while the workers have been told to stop, and not all have left yet."""
        return self.run.state.stopping and self.run.state.training

    @property
    def length(self) -> int:
        """Returns the number of parameters of the model; 0 until worker 0 has reported it."""
        return self.run.state.length

    def missing(self) -> list[Party]:
        """Returns who has not answered in this phase, or not left yet; a timeout names them."""
        return self._bring_up.missing()

    def survives(self, who: Party) -> bool:
        """Returns True if the run continues without `who`, or already does."""
        return self._evaluator.survives() if who == party.EVALUATOR else self.elasticity.survives(who)

    def why_last(self, who: Party) -> str:
        """Returns why losing `who` ends a run that otherwise survives losses, as the end of a line; else nothing."""
        return self.elasticity.why_last(who)

    def incarnation_of(self, who: Party) -> int:
        """Returns the number of the present incarnation of `who`, or of its last one if it is lost."""
        return self._evaluator.incarnation if who == party.EVALUATOR else self.run.members.incarnation(who)

    def hears(self, who: Party, incarnation: int) -> bool:
        """Returns True if what that incarnation of `who` says counts, once training has begun."""
        if who == party.EVALUATOR:
            return self._evaluator.hears(incarnation)
        return self.run.members.hears(who, incarnation)

    # ---- training begins ---------------------------------------------------------------------------------
    def begin_training(self) -> None:
        """Starts training, once the clock of the run has been started (`StartTraining`)."""
        self._bring_up.begin_training()

    def begin_in_training(self, model: control.Ready, plan: control.Plan) -> None:
        """Begins where the bring-up ends, for a driver that simulates none: everybody has `model` and `plan`."""
        state = self.run.state
        state.phase, state.model, state.agreed = RunPhase.TRAINING, model, plan
        self.elasticity.begin()

    # ---- inputs ------------------------------------------------------------------------------------------
    def stop(self, reason: str) -> None:
        """Ends the run for `reason`."""
        self.ending.stop(reason)

    def ordered(self, order: OperatorOrder, why_not: str) -> None:
        """Carries out what a person asks for; `why_not`: why the driver refuses it already."""
        self._operator.take(order, why_not)

    def rang(self, timer: Timer, number: int) -> None:
        """Does what the end of a timer asks for."""
        match timer:
            case Timer.MEMBERS:
                self.starts.look()
                self.elasticity.look()
            case Timer.EVALUATOR:
                self._evaluator.look()
            case Timer.SERVERS_BACK:
                self.recovery.still_waiting(number)
            case Timer.TIME_LIMIT:
                self.ending.time_is_over()

    def heard(self, src: Party, at: float) -> None:
        """Notes that `src` was alive at `at`, on the clock of the run."""
        members = self.run.members
        members.heard(at, src)
        if src == party.EVALUATOR:
            self._evaluator.heard()
        if src.kind == "server" and self.run.state.training:  # it makes no steps, so it can be silent but not stuck
            members.progressed(at, src, 0, waits=True, step_s=math.inf)

    def recorded(self, record: Record) -> None:
        """Takes a record of a party's trace."""
        self.recovery.recorded(record)
        self.decide.record(record)

    def told(self, src: Party, message: Any) -> None:
        """Handles a message of the control plane. One that contradicts the protocol expels its worker (`expelled_for`);
        of any other party, or before workers train, it raises ProtocolError.
        """
        try:
            self._told(src, message)
        except ProtocolError as error:
            if not self.expelled_for(src, error):
                raise

    def _told(self, src: Party, message: Any) -> None:
        match message:
            case control.Progress() as progress:  # first: by far the most
                self._progressed(src, progress)
            case control.Hello() as hello:
                self._hello(src, hello)
            case control.Ready() as ready if src in self.run.roster.joining:
                self.elasticity.ready(src, ready)
            case control.Prepared() as prepared if self.phase in (RunPhase.TRAINING, RunPhase.FINISHING):
                self.recovery.prepared(src, prepared)
                if not self.recovery.under_way:
                    training = self.run.roster.training
                    self.leasing.servers_are_back({who.index: self.incarnation_of(who) for who in training})
            case control.Saved():
                self.ending.saved(src)
            case control.Ready() | control.Prepared() as answer:
                self._bring_up.answered(src, answer)
            case control.Failed() as failed:
                self._failed(src, failed)
            case message:
                self._while_training(src, message)

    def acknowledged(self, who: Party, view: int) -> None:
        """Notes that `who` has heard of every change of membership up to `view`, as Aware says."""
        self.elasticity.carry_out(self.run.members.acknowledged(self.run.now(), who, view))

    def expelled_for(self, src: Party, error: ProtocolError) -> bool:
        """Expels a worker whose message broke the protocol while workers train; the run goes on without it.

        Returns False in any other phase and for any other party: then the connection is to be closed.
        """
        if src.kind != "worker" or not self.run.state.training:
            return False
        self._strikes.strike(src, str(error), at_once=True)
        return True

    def expel(self, rank: int, why: str) -> None:
        """Expels a worker for good, if the run can go on without it."""
        self.elasticity.expel(party.worker(rank), why)

    # ---- messages ----------------------------------------------------------------------------------------
    def _hello(self, src: Party, hello: control.Hello) -> None:
        self.starts.over(src)
        if src in self.run.roster.not_started and self.phase not in TRAINING_AND_AFTER:
            self._bring_up.comes_early(src, hello)
        elif self.phase is RunPhase.GATHERING:
            self._bring_up.joined(src, hello)
        elif src == party.EVALUATOR:
            self._evaluator.hello(hello)
        else:
            self.elasticity.hello(src, hello)

    def _while_training(self, src: Party, message: Any) -> None:
        if isinstance(message, loop_messages.OF_SCRIPTS) and not self._rules.own_loops:
            raise ProtocolError(f"{src} sent {type(message).__name__}, which is for scripts")
        match message:
            case control.Aware(view=view):
                self.acknowledged(src, view)
            case control.EvaluationReport() as judged:
                self.ending.evaluated(judged)
            case control.Left(reason=reason, drained=drained):
                self._left(src, reason, drained=drained)
            case control.Unfit(rank=rank, reason=reason):
                self.expel(rank, reason)
                self.ending.go_on()  # where the run ends, it is not waited for
            case loop_messages.OwnResult() as said:
                self.own_results.told(src, said)
                self.ending.go_on()
            case control.Beat():
                pass
            case control.Ask() as ask:
                self._ask(src, ask)
            case loop_messages.Draw() | loop_messages.Reported() | loop_messages.EndRun() as said:
                self._loop_said(src, said)
            case loop_messages.ShareTrained() | loop_messages.TakeShare() as said:
                self._share_said(src, said)
            case loop_messages.ShareValue(name=name, value=value):
                self._share(src, name, value)
            case said if isinstance(said, sample_leases.MESSAGES):
                self.leasing.heard(src, self.incarnation_of(src), said)
                self.ending.stop_at_epochs()
            case other:
                raise ProtocolError(f"{src} sent {type(other).__name__}")

    def _loop_said(self, src: Party, said: loop_messages.Draw | loop_messages.Reported | loop_messages.EndRun) -> None:
        """Handles what a user's own training loop asks for (samples) or reports (an evaluation, the end of the run)."""
        run = self.run
        match said:
            case loop_messages.Draw():
                run.decide.send([src], self.elasticity.quotas.draw(src.index, said))
                self._strike_refused(self.elasticity.quotas)
            case loop_messages.Reported(accuracy=accuracy, loss=loss):
                at, samples = run.now(), run.totals.samples
                report = control.EvaluationReport(at=at, samples=samples, accuracy=accuracy, loss=loss, seconds=0.0)
                self.ending.evaluated(report, src)
            case loop_messages.EndRun(reason=reason):
                self.ending.asked(src, reason)

    def _share_said(self, src: Party, said: loop_messages.ShareTrained | loop_messages.TakeShare) -> None:
        """Handles what a worker reports of its share of a data set, or asks for of the shares of others."""
        match said:
            case loop_messages.ShareTrained():
                self.elasticity.shares.trained(src.index, said)
                self._strike_refused(self.elasticity.shares)
            case loop_messages.TakeShare():
                self.elasticity.shares.take(src.index, said)

    def _ask(self, src: Party, ask: control.Ask) -> None:
        """Grants a quota; none to one that asks for what cannot be, which waits for an answer."""
        quota = 0
        try:
            quota = self.elasticity.quotas.quota(src.index, ask)
        finally:
            self.decide.send([src], control.Quota(samples=quota))
        self._strike_refused(self.elasticity.quotas)

    def _strike_refused(self, shared: Quotas | ShareRequests) -> None:
        """Expels workers that have reported other data than most."""
        for rank, why in shared.take_refused():
            self._strikes.strike(party.worker(rank), why, at_once=True)

    def _share(self, src: Party, name: str, value: str) -> None:
        """Passes a value on to all workers, those too that have left and wait for the end of the run."""
        run, shared = self.run, self.run.state.shared
        if name in shared or len(shared) < SHARED_MAX:
            shared[name] = value
            away = run.roster.lost | run.roster.drained | {src}
            here = [who for who in run.roster.workers if who not in away]
            run.decide.send(here, loop_messages.SharedValue(name=name, value=value))
            run.decide.send([src], loop_messages.SharedValue(name=name, value=value, own=True))

    def _progressed(self, src: Party, progress: control.Progress) -> None:
        run = self.run
        if run.state.training:
            steps = progress.steps - progress.steps_before
            usual = progress.seconds_computing / max(1, steps)
            run.members.progressed(run.now(), src, steps, waits=not progress.seconds_at_batch, step_s=usual)
            self._standstill.progressed(src, steps, usual, progress.seconds_in_loop)
        total = run.totals.told(src.index, progress)
        self.own_results.progressed(src.index, total.exchanges)
        run.decide.add(ProgressReported(src.index, total))
        if run.state.training:
            of_all = control.Total(
                samples=run.totals.samples, epochs=self.leasing.epochs, exchanges=run.totals.exchanges
            )
            run.decide.send([src, *run.roster.evaluator], of_all)
            self.ending.stop_at_epochs()

    def _left(self, src: Party, reason: str, *, drained: bool) -> None:
        """Takes a worker out of training. `drained`: it is being drained and exits at once.

        When the last one has left the run ends, but where it goes on without any worker (`min_workers`).
        """
        self.elasticity.left(src, reason, drained=drained)
        if not self.run.roster.training and not self.stopping and reason in ALL_WAS_TRAINED:
            self.elasticity.record_untrained()
        if self._rules.min_workers:
            self.ending.left(reason)

    # ---- losses and failures -----------------------------------------------------------------------------
    def lost(self, src: Party, why: str, *, broke_protocol: bool = False) -> None:
        """Handles the loss of a party: its connection or its process has ended."""
        if broke_protocol and src.kind == "worker" and self.run.state.training:
            self._strikes.strike(src, why, at_once=True)
        if src == party.EVALUATOR and self.survives(src):
            if self.phase is RunPhase.FINISHING and self.ending.has_saved(src):
                self.run.roster.banned.add(src)  # it has saved the last model
            self._evaluator.lost(why)
            return
        self._bring_up.lost_early(src)
        self.elasticity.lost(src, why)
        self.ending.go_on()

    def _failed(self, src: Party, failed: control.Failed) -> None:
        """Handles a party's report of its own error: the party is lost, or the run fails.

        sender                                   then
        worker that the run survives             it is lost, as if it had been killed
        worker that is still joining             it is lost, and may try again
        most workers, in the same way            the run fails: it is a bug in the script, which all have
        anybody else                             the run fails
        """
        roster = self.run.roster
        refused = self._strikes.refused(src) or src in roster.banned
        alone = src.kind == "worker" and self.survives(src)
        if alone and self.run.state.training and not refused and not self.elasticity.is_last(src):
            alone = not self._fails_as_most(src, failed.cause)
        if alone or src in roster.joining:
            self.lost(src, failed.cause)
        else:
            kind = FailureKind.LOST_ANOTHER if failed.lost_another else FailureKind.ERROR
            self.decide.add(RunFailure(src, failed.cause, failed.details, kind))

    def _fails_as_most(self, src: Party, cause: str) -> bool:
        """Returns True if more than half of the workers have failed so. Addresses and sizes in an error may differ."""
        same, now = NUMBERS.sub("0", cause.removeprefix(f"{src}: ")), self.run.now()
        self._failures.report(src.index, same, now)
        return self._failures.agreed(same, self.run.roster.ranks(), now)
