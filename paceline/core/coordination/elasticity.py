"""Membership of workers during training: workers that are lost, expelled, drained, leave, join and rejoin.

    state       input                                   then                                                  next
    TRAINING    lost: connection, silence, no step      WorkerLeft to the others; rounds close without it     LOST
    TRAINING    expelled: bad messages or gradients     the same; it is not restarted                         LOST
    TRAINING    set aside: its own results are bad      Drain to it, and then as Left                         TRAINING
    TRAINING    Left                                    WorkerLeft to the others                              LEFT
    LEFT        Aware from all others, if drained       Exit to it                                            LEFT
    LEFT        lost, if drained                        WorkerLeft, lost, to the others                       LEFT
    LEFT        lost                                    recorded only; nobody has to react                    LEFT
    LOST        Hello of a later incarnation            Roster to it                                          JOINING
    LOST        Hello, but banned or the run stops      Stop to it                                            LOST
    JOINING     Ready, with the model of the others     WorkerJoined to the others                            ANNOUNCED
    JOINING     Ready, with another model               it is lost                                            LOST
    JOINING     lost                                    NewcomerLost to the other newcomers                   LOST
    ANNOUNCED   Aware from all others                   Plan and Go to it                                     TRAINING
    JOINING,    a server is lost                        it is lost too, and may try again                     LOST
    ANNOUNCED

The states are those of `paceline.core.fault_tolerance.membership`, which decides. This file turns its decisions (Evict,
Announce, Enter, Refuse, LetExit) into messages, trace records and calls to the coordinator's role. A run that does not
survive a loss fails (`survives`). Lost servers are the subject of `server_recovery.py`.

ANNOUNCED exists because rounds and means are formed from the membership that each process knows: a newcomer may train
only when every other process has acknowledged that it counts with it. In the same way a drained worker may exit only
when every other process has acknowledged that it has left: until then somebody may send it what must not be lost, such
as a share under gossip. A worker that was drained hears of losses until it has ended, as it may wait for who is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import loop_messages
from paceline.core.coordination.decisions import (
    FailCallsTo,
    FailureKind,
    NotifyWorkerJoined,
    NotifyWorkerLeft,
    PartyJoined,
    ProgressReported,
    Timer,
)
from paceline.core.coordination.ending import RunEnding
from paceline.core.coordination.lifecycle import RunContext, RunPhase
from paceline.core.coordination.party import Party
from paceline.core.coordination.same_model import other_model
from paceline.core.coordination.sample_leases import Leasing, Quotas, ShareRequests
from paceline.core.coordination.server_recovery import Recovery
from paceline.core.errors import ProtocolError
from paceline.core.fault_tolerance.membership import (
    Announce,
    Enter,
    Evict,
    LetExit,
    MembershipDecision,
    MembershipState,
    Refuse,
)
from paceline.core.samples.shares_kept import KeptShare
from paceline.core.trace import LEFT_UNTRAINED, Decided, LostWork, MemberChange

ALL_WAS_TRAINED = ("epochs", "every worker was done")
"""Reasons of a worker to leave for want of samples."""


class Elasticity:
    """Handles changes of membership during training, on the coordinator's thread.

    It changes the roster and, of the run's state, only who holds the last model.
    """

    def __init__(
        self,
        run: RunContext,
        recovery: Recovery,
        ending: RunEnding,
        leasing: Leasing,
        quotas: Quotas,
        min_workers: int,
        shares: Sequence[KeptShare] = (),
    ) -> None:
        """`shares`: what the checkpoint that the run goes on from had of the shares of the first data set."""
        self._run, self._state, self._roster = run, run.state, run.roster
        self._members, self._decide = run.members, run.decide
        self._recovery, self._ending = recovery, ending
        self._leasing, self._min_workers = leasing, min_workers
        self.quotas = quotas
        self.shares = ShareRequests(run.decide.send, run.totals, run.roster.ranks, shares, self._report_left)
        self._all_trained = ""  # why the last worker left that had no samples left
        self._asked: set[Party] = set()  # for a stack trace, since their step takes long
        self._set_aside: dict[Party, str] = {}  # why
        self._waiting: dict[Party, control.Hello] = {}  # said while servers were being replaced

    def _report_left(self, left: loop_messages.SharesLeft) -> None:
        self._state.shares_left = left
        self._decide.send(self._roster.evaluator, left)

    def begin(self) -> None:
        """Begins to watch the starting workers and the servers; called when training starts."""
        for who in (*self._roster.beginning, *self._roster.servers):
            self._members.hello(0.0, who, 0)
        self._members.begin(0.0)
        self.look()

    def survives(self, who: Party) -> bool:
        """Returns True if the run continues without `who`, or already does.

        who       when                                    survives if
        server    during training                         it can be replaced
        anybody   already lost                            always
        worker    it was drained                          always
        worker    it trains, the run is not stopping      more than `min_workers` train, and servers carry the means
        worker    the last that trains, as all others     one of them has the last model: the run ends without its rest
                  had no samples left
        worker    the run stops, or it has left           another worker has the last model, or can fetch it

        Where the workers carry means among themselves, the loss of one that trains ends the run.
        """
        roster, state = self._roster, self._state
        if who.kind == "server":
            return state.training and self._recovery.can_replace(who)
        if who in roster.lost or who in roster.drained:
            return True
        if who.kind != "worker" or state.phase not in (RunPhase.TRAINING, RunPhase.FINISHING):
            return False
        if state.stopping or who not in roster.training:
            return bool(roster.training - {who}) or state.holder not in (None, who) or self._others_left(who)
        if self._state.plan.allreduce != "servers":
            return False
        return len(roster.training) > self._min_workers or self.is_last(who)

    def is_last(self, who: Party) -> bool:
        """Returns True if all others have left for want of samples, and one of them has the last model."""
        return bool(self._all_trained) and self._roster.training == {who} and self._state.holder not in (None, who)

    def _others_left(self, who: Party) -> bool:
        state = self._state
        ending = state.phase is RunPhase.FINISHING and state.model_on_servers
        return ending and self._other_holder(who) is not None

    def _other_holder(self, who: Party) -> Party | None:
        gone = self._roster.lost | self._roster.drained | {who}
        return next((other for other in self._roster.workers if other not in gone), None)

    def why_last(self, who: Party) -> str:
        """Returns why losing `who` ends a run that otherwise survives losses, as the end of a line; else nothing."""
        few = who in self._roster.training and 1 < self._min_workers >= len(self._roster.training)
        why = f"fewer than --min-workers {self._min_workers} would be left" if few else self._recovery.exhausted(who)
        return f"; {why}" if why else ""

    # ---- lost, expelled, drained, left -------------------------------------------------------------------
    def lost(self, who: Party, why: str) -> None:
        """Handles the loss of a worker or a server: the others go on without it, or the run fails."""
        self._waiting.pop(who, None)  # that process does not come any more
        if who in self._roster.drained:
            self._drained_ends(who)
        elif who in self._roster.lost and self._members.state(who) is MembershipState.LEFT:
            return  # it was drained, or this loss has been recorded
        elif self.survives(who) and who not in self._roster.lost and self._members.state(who) is MembershipState.LEFT:
            self._roster.lost.add(who)  # it has left training, so nobody waits for it
            if self._state.holder == who:
                self._state.holder = self._other_holder(who) if self._state.phase is RunPhase.FINISHING else None
            told = {"event": "lost", "reason": f"{why}; it had finished training"}
            self._decide.record(MemberChange(at=self._run.now(), party=str(who), **told))
        elif self.survives(who):
            self.carry_out(self._members.lost(self._run.now(), who, self._members.incarnation(who), why))
        elif self._state.phase is not RunPhase.OVER and who not in self._roster.lost:
            self._decide.fail(who, f"lost {who}: {why}{self.why_last(who)}", FailureKind.WAS_LOST)

    def expel(self, who: Party, why: str) -> None:
        """Expels a worker for good: it is not restarted and may not rejoin.

        A worker that the run cannot lose (`survives`) stays, and the servers continue to reject its bad messages.
        """
        if who not in self._roster.lost | self._roster.drained and self.survives(who):
            self._roster.banned.add(who)
            self.lost(who, f"expelled: {why}; it is not started again")

    def set_aside(self, who: Party, why: str) -> None:
        """Expels a worker without losing it: it leaves after its step, as if it were drained, and is not started again.

        So its mass goes to others, in gossip. Its process ends if the run survives that; otherwise it stays, and passes
        on what the others average.
        """
        if who in self._roster.training and not self._state.stopping and who not in self._set_aside:
            self._set_aside[who] = why
            self._decide.send([who], loop_messages.Drain(reason=f"expelled: {why}"))

    def left(self, who: Party, reason: str, *, drained: bool) -> None:
        """Takes a worker that sent Left out of training.

        `drained`: it is being drained and exits when all others know that it has left. A worker that left otherwise
        stays connected until the end of the run, and holds the last model if it left last; so does a drained one where
        workers carry means among themselves.
        """
        drained = drained and not self._state.stopping
        exits = drained and self.survives(who)
        self._roster.training.discard(who)
        if reason in ALL_WAS_TRAINED:
            self._all_trained = reason
        goes_on = exits or (drained and bool(self._roster.training))
        if not exits:
            self._state.holder = who
        if exits:
            self._roster.banned.add(who)
            self._roster.drained.add(who)
        if goes_on:
            reason += f"; {self._roster.count('continue')}"
        now, event = self._run.now(), "drained" if goes_on else "left"
        if why := self._set_aside.pop(who, ""):
            self._roster.banned.add(who)
            event, reason = "expelled", f"{why}; it trains no more; {self._roster.count('continue')}"
        self._decide.record(MemberChange(at=now, party=str(who), event=event, reason=reason))
        self._recovery.departed.add(who.index)
        known = self._members.left(now, who, drained=exits)
        self.quotas.gone(who.index)
        self.shares.gone(who.index)
        if self._state.training:
            incarnation, view = self._members.incarnation(who), self._members.view if exits else 0
            gone = control.WorkerLeft(rank=who.index, incarnation=incarnation, view=view)
            self._decide.send(self._roster.present(), gone)
            self._decide.add(NotifyWorkerLeft(who.index))
            self._end_leases(who, incarnation)
        self.carry_out(known)

    def _let_exit(self, who: Party) -> None:
        """Lets the process of a drained worker end, unless it has ended; if the run ends, it stays for that."""
        goes_on = self._state.training and not self._state.stopping
        goes_on = goes_on and bool(self._roster.training or not self._min_workers)
        if who in self._roster.drained and goes_on:
            self._roster.lost.add(who)
            self._decide.send([who], control.Exit())

    def _drained_ends(self, who: Party) -> None:
        """Tells the others that the process of a drained worker has ended: nobody can ask it for anything more."""
        self._roster.drained.discard(who)
        self._roster.lost.add(who)
        if self._state.training:
            incarnation = self._members.incarnation(who)
            gone = control.WorkerLeft(rank=who.index, lost=True, incarnation=incarnation)
            self._decide.send(self._roster.present(), gone)

    def look(self) -> None:
        """Looks for silent and stuck workers and servers, several times a second during training.

        A worker half way to counting as stuck is asked once for a stack trace (Explain), which goes to its log.
        """
        if self._state.training:
            slow = {who for who in self._members.half_stuck(self._run.now()) if who.kind == "worker"}
            self._decide.send(sorted(slow - self._asked), control.Explain())
            self._asked = slow
            self.carry_out(self._members.tick(self._run.now()))
            self._decide.start_timer(self._members.patience.tick_s, Timer.MEMBERS)

    def carry_out(self, decisions: Iterable[MembershipDecision[Party]]) -> None:
        for decision in decisions:
            match decision:
                case Evict(who=who) if who.kind == "server" and self.survives(who):
                    self._abort_joins("a server was lost while it joined")
                    self._recovery.lost(who, decision.incarnation, decision.reason)
                    self.shares.servers_go_back()
                case Evict(who=who) if self.survives(who):
                    self._evict(decision)
                case Evict(who=who, reason=reason):
                    self._decide.fail(who, f"lost {who}: {reason}{self.why_last(who)}", FailureKind.WAS_LOST)
                case Announce(who=who):
                    self._announce(who, decision.incarnation, decision.view)
                case Enter(who=who):
                    self._enter(who)
                case LetExit(who=who):
                    self._let_exit(who)
                case Refuse(who=who, incarnation=incarnation, reason=reason):
                    self._decide.close_connection(who, incarnation, reason)

    def _evict(self, decision: Evict[Party]) -> None:
        who, why = decision.who, decision.reason
        why += "; its log shows where it is stuck" if who in self._asked else ""
        self._roster.lost.add(who)
        self._roster.training.discard(who)
        self._recovery.departed.add(who.index)
        steps, samples = self._run.totals.alone(who.index)
        if progress := self._run.totals.lost(who.index):
            self._decide.add(ProgressReported(who.index, progress))
        self.quotas.gone(who.index)
        self.shares.gone(who.index)
        newcomer = self._roster.joining.pop(who, None) is not None
        if not (newcomer and self._state.stopping):  # it asked to join too late: it was told Stop, and no record is due
            before = " before it had rejoined" if newcomer else ""
            reason = f"{why}{before}; {self._roster.count('continue')}"
            self._decide.record(MemberChange(at=self._run.now(), party=str(who), event="lost", reason=reason))
        if samples:
            at = self._run.now()
            self._decide.record(LostWork(at=at, party=str(who), rank=who.index, steps=steps, samples=samples))
        self._decide.add(FailCallsTo(who, why))
        if decision.known:  # the others were told of it, so they must be told that it is lost
            gone = control.WorkerLeft(rank=who.index, lost=True, incarnation=decision.incarnation)
            self._decide.send([*self._roster.present(), *sorted(self._roster.drained)], gone)
            self._decide.add(NotifyWorkerLeft(who.index))
            self._end_leases(who, decision.incarnation)
        elif newcomer and self._roster.joining:  # those who came later call it, and would wait for its answer
            lost = control.NewcomerLost(rank=who.index, incarnation=decision.incarnation)
            self._decide.send(list(self._roster.joining), lost)
        self._decide.close_connection(who, decision.incarnation, why)
        if not self._roster.training and self._state.holder is not None:
            if self._state.stopping:
                self._ending.finish()
            elif self._all_trained:
                self.record_untrained()
                self._ending.left(self._all_trained)

    def _end_leases(self, who: Party, incarnation: int) -> None:
        self._leasing.gone(who.index, incarnation, ask=not self._recovery.under_way)

    def record_untrained(self) -> None:
        """Records what is left of shares and of the queue when nobody is there any more to train it."""
        left = [(rank, samples, f" of worker {rank}'s share") for rank, samples in self.shares.untrained().items()]
        left += [(0, samples, "") for samples in (self.quotas.untrained(),) if samples]
        for rank, samples, of in left:
            count = f"{samples:,} samples{of} were" if samples > 1 else f"a sample{of} was"
            reason = f"{count} trained by nobody: no worker was there any more"
            now = self._run.now()
            self._decide.record(Decided(at=now, party="coordinator", rank=rank, verdict=LEFT_UNTRAINED, reason=reason))

    # ---- joining -----------------------------------------------------------------------------------------
    def hello(self, who: Party, hello: control.Hello) -> None:
        """Handles a Hello after the bring-up: a lost worker or server that is back.

        Raises ProtocolError for a party that is not lost.
        """
        if who in self._roster.lost:
            self._comes(who, hello)
        elif who.kind == "server" and self._members.state(who) is MembershipState.LOST:
            self._decide.add(PartyJoined(who, hello))
            self._roster.hellos[who] = hello
            self._recovery.hello(who, hello.incarnation, self._roster.roster(self._recovery.server_view))
        else:
            raise ProtocolError(f"{who} says hello while the run is {self._state.phase.value}")

    def _comes(self, who: Party, hello: control.Hello) -> None:
        """Lets a later incarnation of a lost worker join: it gets the roster, and answers Ready.

        While servers are being replaced it has to wait, since it could connect to one that is about to go.
        """
        if self._recovery.under_way:
            self._waiting[who] = hello
            self._recovery.afterwards(lambda: self._has_waited(who, hello))
            return
        if not self._state.training or self._state.stopping or who in self._roster.banned:
            self._decide.send([who], control.Stop(reason=self._state.reason or "it was expelled from the run"))
            return
        self.carry_out(self._members.hello(self._run.now(), who, hello.incarnation))
        if self._members.state(who) is not MembershipState.JOINING:
            return
        self._roster.joining[who] = hello
        self._decide.add(PartyJoined(who, hello))
        self._decide.send([who], self._roster.roster(self._recovery.server_view, late=self._members))

    def _has_waited(self, who: Party, hello: control.Hello) -> None:
        """Lets it join, unless its process has ended meanwhile."""
        if self._waiting.get(who) is hello:
            del self._waiting[who]
            self._comes(who, hello)

    def ready(self, who: Party, ready: control.Ready) -> None:
        """Handles Ready of a joining worker: it is announced to the others if it trains the same model."""
        if self._recovery.under_way:
            self._recovery.afterwards(lambda: self.ready(who, ready))
        elif who not in self._roster.joining or self._state.stopping:
            pass  # it is lost again, or too late
        elif other := other_model(who.index, ready, self._state.first):
            self.lost(who, other)
        else:
            self.carry_out(self._members.ready(self._run.now(), who))

    def _announce(self, who: Party, incarnation: int, view: int) -> None:
        hello = self._roster.hellos[who] = self._roster.joining[who]
        came = control.WorkerJoined(
            rank=who.index, incarnation=incarnation, view=view, address=hello.address, host=hello.host
        )
        self._recovery.came_back(who.index)
        self._decide.send([other for other in self._roster.present() if other != who], came)
        self._decide.add(NotifyWorkerJoined(who.index))

    def _enter(self, who: Party) -> None:
        """Lets a newcomer train, once all others have acknowledged it.

        Nothing happens if its join was aborted meanwhile, or if it was told that the run ends.
        """
        if self._state.stopping or who not in self._roster.joining:
            return
        hello = self._roster.joining.pop(who)
        self._roster.lost.discard(who)
        self._roster.training.add(who)
        now = self._run.now()
        former = self._run.totals.new_incarnation(who.index)
        incarnation = (
            "its first incarnation"
            if who in self._roster.not_started
            else f"incarnation {self._members.incarnation(who) + 1}"
        )
        self._roster.not_started.discard(who)
        told = {"event": "returned", "reason": f"{incarnation}; {self._roster.count('train')}"}
        self._decide.record(MemberChange(at=now, party=str(who), device=hello.device, host=hello.host, **told))
        self._decide.send([who], self._state.plan)
        self._decide.send([who], control.Go(at=now, samples=self._run.totals.samples, steps=former.steps))
        if self._state.rate_factor != 1.0:
            self._decide.send([who], loop_messages.ScaleRate(factor=self._state.rate_factor))
        for name, value in self._state.shared.items():
            self._decide.send([who], loop_messages.SharedValue(name=name, value=value))

    def _abort_joins(self, why: str) -> None:
        """Drops all newcomers, which nothing connects to the server that replaces the lost one; they may try again."""
        now = self._run.now()
        for who in list(self._roster.joining):
            decisions = self._members.lost(now, who, self._members.incarnation(who), why)
            self.carry_out(decision for decision in decisions if not isinstance(decision, Enter))
