"""The coordinator's end of the control plane: brings a run up, watches it, ends it.

    gathering -> readying -> placing servers -> placing workers -> training -> finishing -> over
        Hello      Ready         Prepared          Prepared                     Saved

Each step waits for a message from every party concerned. Everything runs on the transport's thread; what happens is
told to a Listener.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from paceline.core.effects import Data
from paceline.core.errors import ProtocolError
from paceline.core.fault_tolerance.membership import Membership as Members
from paceline.core.fault_tolerance.membership import Patience
from paceline.core.role import Role, RoleContext
from paceline.core.trace import Decision, Ended, Evaluated, Membership
from paceline.live import party
from paceline.live.collectives.store import QUESTIONS, Rendezvous
from paceline.live.control import permissions
from paceline.live.control.trace_records import told_by
from paceline.live.coordinator import sample_leases
from paceline.live.coordinator.elasticity import Elasticity
from paceline.live.coordinator.evaluator_watch import EvaluatorLives
from paceline.live.coordinator.lifecycle import (
    TARGET_REACHED,
    WAIT_SECONDS,
    RunPhase,
    RunState,
    StopRule,
    moving_seconds,
)
from paceline.live.coordinator.listener import CoordinatorListener
from paceline.live.coordinator.planning import ChooseAllreduce, LayOut, make_plan, no_update
from paceline.live.coordinator.progress_totals import ProgressTotals
from paceline.live.coordinator.roster import RunRoster
from paceline.live.coordinator.sample_quotas import Quotas
from paceline.live.coordinator.server_recovery import Recovery, Snapshots
from paceline.live.node.node import Node
from paceline.live.party import Party
from paceline.live.protocol import control_messages as control
from paceline.live.protocol import loop_messages
from paceline.live.protocol.transport import CONTROL, Broken, Envelope, Kind, Transport, tell

STUCK_STEPS = 20.0


class Coordinator:
    """Brings up and ends a run of `workers` workers and `servers` servers, with an evaluator or without."""

    def __init__(
        self,
        transport: Transport,
        node: Node,
        listener: CoordinatorListener,
        *,
        workers: int,
        servers: int,
        evaluator: bool,
        stop_rule: StopRule,
        make_role: Callable[[control.Plan, RoleContext], Role],
        lay_out: LayOut,
        choose_allreduce: ChooseAllreduce,
        seed: int = 0,
        dead_after_s: float = math.inf,
        stuck_after_s: float = math.inf,
        min_workers: int = 1,
        snapshots: Snapshots | None = None,
        not_started: Collection[int] = (),
        done: Data = (),
        model_on_servers: bool = False,
    ) -> None:
        """`lay_out` says which server holds what, and why, from what the workers and the servers said of themselves.

        `choose_allreduce` says who carries means, from what the workers said, and how many servers there are.
        `dead_after_s`: so long a party may be silent while training goes on, the evaluator also later.
        `stuck_after_s`: so long a worker may be at one step, or for STUCK_STEPS of its usual ones, whichever is
        longer. `min_workers`: with fewer left after a loss the run ends.
        `snapshots`: what servers that are lost are replaced from; without, a lost server ends the run.
        `not_started`: workers, those of the highest ranks, that may come while training goes on.
        `done`: leased samples that an earlier incarnation of the run has behind it.
        `model_on_servers`: no worker is needed for the last model.
        """
        self.node = node
        self._transport, self._listener = transport, listener
        self._tell = functools.partial(tell, transport)
        self._stop_rule, self._make_role, self._seed = stop_rule, make_role, seed
        self._lay_out, self._choose_allreduce = lay_out, choose_allreduce
        self._snapshots = snapshots
        self._run_state, self._totals = RunState(model_on_servers=model_on_servers), ProgressTotals()
        self._roster = roster = RunRoster(workers, servers, evaluator, not_started)
        self._longest = 0  # elements of the model
        self._answers: dict[Party, Any] = {}  # what each party said in this phase
        # Workers and servers, once training has started.
        patience = Patience(dead_s=dead_after_s, stuck_s=stuck_after_s, stuck_steps=STUCK_STEPS)
        self._members = Members[Party](patience)
        others = [*roster.workers, *roster.evaluator]
        self._recovery = Recovery(transport, node, listener, self._members, roster.servers, others, snapshots)
        self._recovery.departed.update(not_started)
        self._leasing = sample_leases.Leasing(self._tell, listener.recorded, node.now, done)
        self._elasticity = self._make_elasticity(min_workers)
        self._evaluating = self._make_evaluating(dead_after_s)
        self._rendezvous = Rendezvous(transport, roster.workers)
        node.admission.expel = lambda rank, why: self._elasticity.expel(party.worker(rank), why)
        node.admission.on_strike = self._refused
        self._leasing.on_false_claim = node.admission.strike

    def _make_elasticity(self, min_workers: int) -> Elasticity:
        return Elasticity(
            self._transport,
            self.node,
            self._listener,
            run_state=self._run_state,
            roster=self._roster,
            totals=self._totals,
            members=self._members,
            recovery=self._recovery,
            leasing=self._leasing,
            quotas=Quotas(self._stop_rule, self._totals),
            min_workers=min_workers,
            finish=self._finish,
        )

    def _make_evaluating(self, dead_after_s: float) -> EvaluatorLives:
        return EvaluatorLives(
            self._transport,
            self.node,
            self._listener,
            run_state=self._run_state,
            roster=self._roster,
            recovery=self._recovery,
            dead_after_s=dead_after_s,
            welcome=self._welcome,
        )

    def open(self) -> str:
        """Begin; returns the address for the others."""
        self._transport.open(self)
        return self._transport.address

    @property
    def phase(self) -> RunPhase:
        return self._run_state.phase

    @property
    def banned(self) -> set[Party]:
        """Workers that nobody starts again, or lets in."""
        return self._roster.banned

    @property
    def samples(self) -> int:
        """Trained by all workers together, as far as reported."""
        return self._totals.samples

    @property
    def stopping(self) -> bool:
        """Have the workers been told to stop, and not all left yet?"""
        return bool(self._run_state.reason) and self.phase is RunPhase.TRAINING

    @property
    def length(self) -> int:
        """Of the model; 0 until it is known."""
        return self._longest

    def missing(self) -> list[Party]:
        """Who has not answered in this phase, or not left yet."""
        if self.stopping:
            return sorted(self._roster.training)
        return [who for who in self._concerned() if who not in self._answers]

    def stop(self, reason: str) -> None:
        """End the run; from any thread."""
        self._transport.call_later(0.0, lambda: self._stop(reason))

    # ---- messages ----------------------------------------------------------------------------------------
    def deliver(self, src: Party, envelope: Envelope) -> None:
        """While training goes on, what a worker says that cannot be is its own end, and nobody else's."""
        try:
            self._deliver(src, envelope)
        except ProtocolError as error:
            if src.kind != "worker" or self.phase is not RunPhase.TRAINING:
                raise
            self.node.admission.strike(src, str(error), at_once=True)

    def _deliver(self, src: Party, envelope: Envelope) -> None:
        permissions.check(src, self.node.me, envelope)
        if not self.node.admits(src, envelope):
            return
        if envelope.kind != CONTROL:
            (self._rendezvous if isinstance(envelope.message, QUESTIONS) else self.node).deliver(src, envelope)
            return
        self._members.heard(self.node.now(), src)
        if src == party.EVALUATOR:
            self._evaluating.heard()
        if src.kind == "server" and self.phase is RunPhase.TRAINING:  # it makes no steps
            self._members.progressed(self.node.now(), src, 0, waits=True, step_s=math.inf)
        match envelope.message:
            case control.Hello() as hello if self.phase is not RunPhase.GATHERING and src == party.EVALUATOR:
                self._evaluating.hello(hello)
            case control.Hello() as hello if self.phase is not RunPhase.GATHERING:
                self._elasticity.hello(src, hello)
            case control.Ready() as ready if src in self._roster.joining:
                self._elasticity.ready(src, ready)
            case control.Aware(view=view):
                self._elasticity.carry_out(self._members.acknowledged(self.node.now(), src, view))
            case control.Failed(cause=cause) if src in self._roster.joining or self._fails_alone(src):
                self.lost(src, cause)
            case control.Hello() as hello:
                self._joined(src, hello)
            case control.Prepared() as prepared if self.phase in (RunPhase.TRAINING, RunPhase.FINISHING):
                self._recovery.prepared(src, prepared)
                if not self._recovery.under_way:
                    self._leasing.servers_are_back(
                        {who.index: self.incarnation_of(who) for who in self._roster.training}
                    )
            case control.Ready() | control.Prepared() | control.Saved() as answer:
                self._answer(src, answer)
            case control.Progress() as progress:
                self._progressed(src, progress)
            case control.Records(lines=lines):
                for record in told_by(src, lines):
                    self._recovery.recorded(record)
                    self._listener.recorded(record)
            case control.Judged() as judged:
                self._judged(judged)
            case loop_messages.Draw() | loop_messages.Reported() | loop_messages.EndRun() as said:
                self._heard_loop(src, said)
            case control.Left(reason=reason, home=home):
                self._left(src, reason, home=home)
            case control.Unfit(rank=rank, reason=reason):
                self._elasticity.expel(party.worker(rank), reason)
                self._go_on()  # where the run ends, it is not waited for
            case control.Beat():
                pass
            case control.Ask() as ask:
                quota = self._elasticity.quotas.quota(src.index, ask, training=len(self._roster.training))
                self._tell([src], control.Quota(samples=quota))
            case said if isinstance(said, sample_leases.MESSAGES):
                self._leasing.heard(src, self.incarnation_of(src), said)
                self._stop_at_epochs()
            case control.Failed(cause=cause, details=details):
                self._listener.failed(src, cause, details)
            case other:
                raise ProtocolError(f"{src} sent {type(other).__name__}")

    def _fails_alone(self, src: Party) -> bool:
        """Is the failure of a worker its own end, as if it had been killed? It is for one whose claims were refused.

        It also is for any worker once all have trained to their end: then a worker that others can do without fails at
        the last model or at its files. Of any other one the failure ends the run: mostly it is a bug in the user's
        script, which all have.
        """
        refused = self.node.admission.strikes[src] or src in self._roster.banned
        ending = self.phase is RunPhase.FINISHING
        return bool(src.kind == "worker" and (refused or ending) and self.survives(src))

    def _joined(self, src: Party, hello: control.Hello) -> None:
        self._rendezvous.hosts[src] = hello.host
        self._listener.joined(src, hello)
        device = hello.device if src.kind == "worker" else ""
        self._listener.recorded(Membership(at=0.0, party=str(src), event="joined", device=device, host=hello.host))
        self._answer(src, hello)

    def _refused(self, src: Party, why: str, strike: int) -> None:
        """The trace has it: what `src` said was beyond its bounds."""
        now, why = self.node.now(), f"{src}: {why}"
        self._listener.recorded(Decision(at=now, party="coordinator", rank=src.index, verdict="refused", reason=why))

    def room_for(
        self, src: Party, kind: Kind, id: int, cls: type, lengths: Sequence[int], shared: Sequence[Any]
    ) -> list[Any]:
        return self.node.room_for_look(src, kind, id, lengths, shared, longest=self._longest)

    def lost(self, src: Party, why: str) -> None:
        if isinstance(why, Broken) and src.kind == "worker" and self.phase is RunPhase.TRAINING:
            self.node.admission.strike(src, str(why), at_once=True)
        why = str(why)
        if src == party.EVALUATOR and self.survives(src):
            if self.phase is RunPhase.FINISHING and src in self._answers:
                self._roster.banned.add(src)  # it has saved the last model
            self._evaluating.lost(why)
            return
        if not self.survives(src):
            self._rendezvous.lost(src, why)
        self._elasticity.lost(src, why)
        if self.phase is RunPhase.FINISHING:
            self._go_on()

    def survives(self, who: Party) -> bool:
        """Does the run go on without `who`? Or has it already?"""
        return self._evaluating.survives() if who == party.EVALUATOR else self._elasticity.survives(who)

    def why_last(self, who: Party) -> str:
        """Why the run could otherwise go on without it, but ends; for the end of a line."""
        return self._elasticity.why_last(who)

    def incarnation_of(self, who: Party) -> int:
        """Its present incarnation, or its last."""
        return self._evaluating.incarnation if who == party.EVALUATOR else self._members.incarnation(who)

    def ended(self, who: Party, why: str) -> None:
        """The process of `who` has ended; from any thread."""
        self._transport.call_later(0.0, lambda: self.lost(who, why))

    def failed(self, error: BaseException) -> None:
        self._listener.failed(self._transport.me, str(error) or repr(error), "")

    # ---- bringing up -------------------------------------------------------------------------------------
    def _concerned(self) -> list[Party]:
        """Who has to answer before the next phase."""
        match self.phase:
            case RunPhase.GATHERING:
                return [*self._roster.beginning, *self._roster.servers, *self._roster.evaluator]
            case RunPhase.PLACING_SERVERS:
                return [*self._roster.servers]
            case RunPhase.READYING | RunPhase.PLACING_WORKERS:
                return self._roster.beginning
            case RunPhase.FINISHING:
                return [who for who in self._roster.everybody() if who not in self._roster.lost]
            case _:
                return []

    def _answer(self, src: Party, answer: Any) -> None:
        self._answers[src] = answer
        self._go_on()

    def _go_on(self) -> None:
        """To the next phase, if nobody is missing in this one."""
        while self.phase not in (RunPhase.TRAINING, RunPhase.OVER) and not self.missing():
            answers, self._answers = self._answers, {}
            self._next(answers)

    def _next(self, answers: dict[Party, Any]) -> None:
        match self.phase:
            case RunPhase.GATHERING:
                self._run_state.phase = RunPhase.READYING
                self._roster.hellos = answers
                self._tell_all(self._roster.roster(self._recovery.server_view))
            case RunPhase.READYING:
                self._make_plan([answers[who] for who in self._roster.beginning])
                self._run_state.phase = RunPhase.PLACING_SERVERS
                self._tell(self._roster.servers, self._plan)
            case RunPhase.PLACING_SERVERS:
                self._run_state.phase = RunPhase.PLACING_WORKERS
                self._tell([*self._roster.workers, *self._roster.evaluator], self._plan)
            case RunPhase.PLACING_WORKERS:
                self._start()
            case RunPhase.FINISHING:
                self._run_state.phase = RunPhase.OVER
                self._tell_all(control.Exit())
                self._leasing.record()
                self._listener.finished(self._run_state.reason, self._run_state.seconds)
            case _:
                raise AssertionError(self.phase)

    def _make_plan(self, ready: list[control.Ready]) -> None:
        kept, roster = self._snapshots, self._roster
        replaced = kept is not None and not kept.refuses(ready[0], len(roster.servers))
        self._model, self._longest = ready[0], ready[0].length
        patience = self._members.patience
        self._members.patience = replace(patience, join_s=WAIT_SECONDS + moving_seconds(self._longest))
        self._plan = make_plan(
            ready,
            [roster.hellos[who] for who in roster.beginning],
            [roster.hellos[who] for who in roster.servers],
            lay_out=self._lay_out,
            choose_allreduce=self._choose_allreduce,
            replaced=replaced,
            copied=replaced and kept is not None and kept.copies,
            not_started=len(roster.not_started),
            samples=self._stop_rule.samples or 0,
            contribution=self._stop_rule.contribution,
            epoch_samples=self._stop_rule.epoch_samples,
            epochs=self._stop_rule.epochs or 0.0,
            resumed=self._stop_rule.behind > 0,
        )
        self.node.admission.planned(self._plan)

    def _start(self) -> None:
        self._run_state.phase = RunPhase.TRAINING
        place = RoleContext(
            me=0,
            workers=tuple(range(len(self._roster.workers))),
            w=None,
            update=no_update,
            seed=self._seed,
            seconds_per_step=self._plan.seconds_per_step,
            note=self._listener.recorded,
            most_samples=self._plan.contribution,
        )
        self.node.place(self._make_role(self._plan, place))
        for who in sorted(self._roster.not_started):
            self.node.gone(who.index)
        self.node.start_clock()
        self._elasticity.begin(self._plan, self._model)
        self._evaluating.begin()
        self._listener.started(self._plan)
        self._tell([*self._roster.servers, *self._roster.beginning, *self._roster.evaluator], control.Go())
        self._recovery.plan = self._plan
        if self._snapshots is not None and self._plan.replaced:
            self._snapshots.begin(self._plan)
        if self._stop_rule.seconds is not None:
            self._transport.call_later(self._stop_rule.seconds, lambda: self._stop("seconds"))

    # ---- training ----------------------------------------------------------------------------------------
    def _progressed(self, src: Party, progress: control.Progress) -> None:
        if self.phase is RunPhase.TRAINING:
            steps = progress.steps - progress.steps_before
            usual = progress.seconds_computing / max(1, steps)
            self._members.progressed(self.node.now(), src, steps, waits=not progress.seconds_at_batch, step_s=usual)
        progress = self._totals.told(src.index, progress)
        self._listener.progressed(src.index, progress)
        if self.phase is RunPhase.TRAINING:
            total = control.Total(samples=self.samples, epochs=self._leasing.epochs)
            self._tell([src, *self._roster.evaluator], total)
            self._stop_at_epochs()

    def _stop_at_epochs(self) -> None:
        """Of leased data; else the workers know when they are done, see `runtime/worker/loop/sample_counts.py`."""
        wanted = self._stop_rule.samples
        if wanted is not None and self._leasing.reached(wanted):
            self._stop("epochs")

    def _heard_loop(self, src: Party, said: loop_messages.Draw | loop_messages.Reported | loop_messages.EndRun) -> None:
        """What a loop says of the model counts as an evaluation of it as it is now."""
        match said:
            case loop_messages.Draw():
                self._tell([src], self._elasticity.quotas.draw(src.index, said, training=len(self._roster.training)))
            case loop_messages.Reported(accuracy=accuracy, loss=loss):
                at = self.node.now()
                self._judged(control.Judged(at=at, samples=self.samples, accuracy=accuracy, loss=loss, seconds=0.0))
            case loop_messages.EndRun(reason=reason):
                self._stop(f"{reason} ({src})")

    def _judged(self, judged: control.Judged) -> None:
        at = min(judged.at, self._run_state.seconds) if self._run_state.seconds else judged.at
        accuracy, loss, samples = judged.accuracy, judged.loss, judged.samples
        self._listener.recorded(
            Evaluated(
                at=at, accuracy=accuracy, loss=loss, samples=samples, seconds=judged.seconds, chance=judged.chance
            )
        )
        if self.phase is RunPhase.TRAINING:
            self.node.judged(judged.accuracy)
        target = self._stop_rule.target_accuracy
        if target is not None and judged.accuracy >= target:
            self._stop(TARGET_REACHED)

    # ---- ending ------------------------------------------------------------------------------------------
    def _left(self, src: Party, reason: str, *, home: bool) -> None:
        """`home`: it wants to end at once."""
        self._elasticity.left(src, reason, home=home)
        if not self._roster.training:
            self._stop(reason)
            self._finish()

    def _finish(self) -> None:
        """Nobody trains any more."""
        if self._recovery.under_way:  # the last model is not whole yet
            self._recovery.afterwards(self._finish)
            return
        self._run_state.phase = RunPhase.FINISHING
        self._tell_all(self._finish_order())

    def _finish_order(self) -> control.Finish:
        assert self._run_state.holder is not None
        return control.Finish(holder=self._run_state.holder.index, reason=self._run_state.reason)

    def _welcome(self, who: Party) -> None:
        """Tells a later incarnation of the evaluator what it has missed."""
        roster = self._roster.roster(self._recovery.server_view, late=self._members)
        go = control.Go(at=self.node.now(), samples=self._totals.samples)
        for message in (roster, self._plan, go):
            self._tell([who], message)
        if self.phase is RunPhase.FINISHING:
            self._tell([who], self._finish_order())

    def _stop(self, reason: str) -> None:
        """Workers are told once; what follows waits until the last of them has left."""
        if self._run_state.reason or self.phase is not RunPhase.TRAINING:
            return
        self._run_state.reason, self._run_state.seconds = reason, self.node.now()
        self._listener.recorded(Ended(at=self._run_state.seconds, reason=reason))
        self._tell([*sorted(self._roster.training), *self._roster.joining], control.Stop(reason=reason))

    def _tell_all(self, message: Any) -> None:
        self._tell(self._roster.everybody(), message)
