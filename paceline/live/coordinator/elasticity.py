"""Workers that are lost, come late and leave while the others train; and who decides that somebody is lost.

    lost        the others go on: they hear of it once, rounds close without it, and what it waited for is dropped
    coming      Hello -> Roster -> Ready -> the others hear Came, and are Aware -> the Plan and Go: it trains
    leaving     Left -> the others hear Gone

What `paceline.core.fault_tolerance.membership` decides is carried out here; a lost server is the affair of
`paceline.live.coordinator.server_recovery`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from paceline.core.errors import ProtocolError
from paceline.core.fault_tolerance.membership import Announce, Decision, Enter, Evict, MembershipState, Refuse
from paceline.core.fault_tolerance.membership import Membership as Members
from paceline.core.trace import Membership
from paceline.live.coordinator.lifecycle import RunPhase, RunState
from paceline.live.coordinator.listener import CoordinatorListener
from paceline.live.coordinator.planning import other_model
from paceline.live.coordinator.progress_totals import ProgressTotals
from paceline.live.coordinator.roster import RunRoster
from paceline.live.coordinator.sample_leases import Leasing
from paceline.live.coordinator.sample_quotas import Quotas
from paceline.live.coordinator.server_recovery import Recovery
from paceline.live.node.node import Node
from paceline.live.party import Party
from paceline.live.protocol import control_messages as control
from paceline.live.protocol.transport import Transport, tell

TICK_SECONDS = 0.25


class Elasticity:
    """Everything happens on the coordinator's thread. It changes the roll; how far the run is, it only reads."""

    def __init__(
        self,
        transport: Transport,
        node: Node,
        listener: CoordinatorListener,
        *,
        run_state: RunState,
        roster: RunRoster,
        totals: ProgressTotals,
        members: Members[Party],
        recovery: Recovery,
        leasing: Leasing,
        quotas: Quotas,
        min_workers: int,
        finish: Callable[[], None],
    ) -> None:
        """`finish` is called when the last that trained is lost, and another one has the last model."""
        self._finish = finish
        self._transport, self._node, self._listener = transport, node, listener
        self._tell = functools.partial(tell, transport)
        self._run_state, self._roster, self._totals = run_state, roster, totals
        self._members, self._recovery = members, recovery
        self._leasing, self._min_workers = leasing, min_workers
        self.quotas = quotas
        self._asked: set[Party] = set()  # where their loops hang

    def begin(self, plan: control.Plan, model: control.Ready) -> None:
        """Training starts with `plan`, and `model` is what a newcomer has to have."""
        self._plan, self._model = plan, model
        for who in (*self._roster.beginning, *self._roster.servers):
            self._members.hello(0.0, who, 0)
        self._members.begin(0.0)
        self._look()

    def survives(self, who: Party) -> bool:
        """Does the run go on without `who`? Or has it already?

        It does without a worker while others train, and where a server can be replaced. Where workers carry means
        themselves, it ends. Once the workers are told to stop, one of them is enough: it has the last model. Where the
        servers have that, it is any one of them.
        """
        roster, run_state = self._roster, self._run_state
        if who.kind == "server":
            return run_state.phase is RunPhase.TRAINING and self._recovery.can_replace(who)
        if who in roster.lost:
            return True
        if who.kind != "worker" or run_state.phase not in (RunPhase.TRAINING, RunPhase.FINISHING):
            return False
        if run_state.reason or who not in roster.training:
            return bool(roster.training - {who}) or run_state.holder not in (None, who) or self._others_left(who)
        return len(roster.training) > self._min_workers and self._plan.allreduce == "servers"

    def _others_left(self, who: Party) -> bool:
        """Have others trained to their end, so that `who` is not needed for a model that the servers have?"""
        run_state = self._run_state
        ending = run_state.phase is RunPhase.FINISHING and run_state.model_on_servers
        return ending and self._other_holder(who) is not None

    def _other_holder(self, who: Party) -> Party | None:
        return next((other for other in self._roster.workers if other != who and other not in self._roster.lost), None)

    def why_last(self, who: Party) -> str:
        """Why the run could otherwise go on without it, but ends; for the end of a line."""
        few = who in self._roster.training and 1 < self._min_workers >= len(self._roster.training)
        why = f"--min-workers {self._min_workers} would not be left" if few else self._recovery.exhausted(who)
        return f"; {why}" if why else ""

    # ---- going -------------------------------------------------------------------------------------------
    def lost(self, who: Party, why: str) -> None:
        if who in self._roster.lost and self._members.state(who) is MembershipState.LEFT:
            return  # it has gone home
        if self.survives(who) and who not in self._roster.lost and self._members.state(who) is MembershipState.LEFT:
            self._roster.lost.add(who)  # it trains no more: nobody has to hear of it
            if self._run_state.holder == who:
                self._run_state.holder = (
                    self._other_holder(who) if self._run_state.phase is RunPhase.FINISHING else None
                )
            told = {"event": "lost", "reason": f"{why}; it had trained to its end"}
            self._listener.recorded(Membership(at=self._node.now(), party=str(who), **told))
        elif self.survives(who):
            self.carry_out(self._members.lost(self._node.now(), who, self._members.incarnation(who), why))
        elif self._run_state.phase is not RunPhase.OVER and who not in self._roster.lost:
            self._listener.failed(who, f"lost {who}: {why}{self.why_last(who)}", "")

    def expel(self, who: Party, why: str) -> None:
        """Expels a worker for good. One whom the run could not do without stays: the servers go on refusing what it
        sends.
        """
        if who not in self._roster.lost and self.survives(who):
            self._roster.banned.add(who)
            self.lost(who, f"{why}; it is not started again")

    def left(self, who: Party, reason: str, *, home: bool) -> None:
        """It trains no more. `home`: it wants to end at once, so that from then on nobody can ask it for anything."""
        home = home and self.survives(who) and not self._run_state.reason
        self._roster.training.discard(who)
        if not home:
            self._run_state.holder = who
        if home:
            self._roster.banned.add(who)
            self._roster.lost.add(who)
            reason += f"; {self._roster.count('continue')}"
        now = self._node.now()
        self._listener.recorded(Membership(at=now, party=str(who), event="drained" if home else "left", reason=reason))
        self._recovery.departed.add(who.index)
        self._members.left(now, who)
        self.quotas.gone(who.index)
        if self._run_state.phase is RunPhase.TRAINING and not self._run_state.reason:
            incarnation = self._members.incarnation(who) if home else 0
            self._tell(self._roster.present(), control.Gone(rank=who.index, lost=home, incarnation=incarnation))
            self._node.gone(who.index)
            self._leasing.gone(who.index, self._members.incarnation(who))
        if home:
            self._tell([who], control.Exit())

    def _look(self) -> None:
        """A few times a second while training goes on: has anybody fallen silent?"""
        if self._run_state.phase is RunPhase.TRAINING:
            slow = {who for who in self._members.half_stuck(self._node.now()) if who.kind == "worker"}
            self._tell(sorted(slow - self._asked), control.Explain())
            self._asked = slow
            self.carry_out(self._members.tick(self._node.now()))
            self._transport.call_later(min(TICK_SECONDS, self._members.patience.dead_s / 4), self._look)

    def carry_out(self, decisions: Iterable[Decision[Party]]) -> None:
        for decision in decisions:
            match decision:
                case Evict(who=who) if who.kind == "server" and self.survives(who):
                    self._abort_joins("a server was lost while it came")
                    self._recovery.lost(who, decision.incarnation, decision.reason)
                case Evict(who=who) if self.survives(who):
                    self._evict(decision)
                case Evict(who=who, reason=reason):
                    self._listener.failed(who, f"lost {who}: {reason}{self.why_last(who)}", "")
                case Announce(who=who):
                    self._announce(who, decision.incarnation, decision.view)
                case Enter(who=who):
                    self._enter(who)
                case Refuse(who=who, incarnation=incarnation, reason=reason):
                    self._transport.drop(who, incarnation, reason)

    def _evict(self, decision: Evict[Party]) -> None:
        who, why = decision.who, decision.reason
        why += "; its log says where it hangs" if who in self._asked else ""
        self._roster.lost.add(who)
        self._roster.training.discard(who)
        self._recovery.departed.add(who.index)
        self.quotas.gone(who.index)
        newcomer = self._roster.joining.pop(who, None) is not None
        if not (newcomer and self._run_state.reason):  # one that came too late to be told anything but that
            before = " before it was back" if newcomer else ""
            reason = f"{why}{before}; {self._roster.count('continue')}"
            self._listener.recorded(Membership(at=self._node.now(), party=str(who), event="lost", reason=reason))
        self._node.lost(who, why)
        if decision.known:
            gone = control.Gone(rank=who.index, lost=True, incarnation=decision.incarnation)
            self._tell(self._roster.present(), gone)
            self._node.gone(who.index)
            self._leasing.gone(who.index, decision.incarnation)
        self._transport.drop(who, decision.incarnation, why)
        if self._run_state.reason and not self._roster.training and self._run_state.holder is not None:
            self._finish()

    # ---- coming ------------------------------------------------------------------------------------------
    def hello(self, who: Party, hello: control.Hello) -> None:
        """After everybody was there. Raises ProtocolError for one that nobody has lost."""
        if who in self._roster.lost:
            self._comes(who, hello)
        elif who.kind == "server" and self._members.state(who) is MembershipState.LOST:
            self._listener.joined(who, hello)
            self._roster.hellos[who] = hello
            self._recovery.hello(who, hello.incarnation, self._roster.roster(self._recovery.server_view))
        else:
            raise ProtocolError(f"{who} says hello while the run is {self._run_state.phase.value}")

    def _comes(self, who: Party, hello: control.Hello) -> None:
        """Handles a later incarnation of a lost worker. It learns where everybody is, and says when it is ready."""
        if self._recovery.under_way:
            self._recovery.afterwards(lambda: self._comes(who, hello))
            return
        if self._run_state.phase is not RunPhase.TRAINING or self._run_state.reason or who in self._roster.banned:
            self._tell([who], control.Stop(reason=self._run_state.reason or "it was put out of the run"))
            return
        self.carry_out(self._members.hello(self._node.now(), who, hello.incarnation))
        if self._members.state(who) is not MembershipState.JOINING:
            return
        self._roster.joining[who] = hello
        self._listener.joined(who, hello)
        self._tell([who], self._roster.roster(self._recovery.server_view, late=self._members))

    def ready(self, who: Party, ready: control.Ready) -> None:
        """Of one that comes."""
        if self._recovery.under_way:
            self._recovery.afterwards(lambda: self.ready(who, ready))
        elif who not in self._roster.joining or self._run_state.reason:
            pass  # it is lost again, or too late
        elif other := other_model(who.index, ready, self._model):
            self.lost(who, other)
        else:
            self.carry_out(self._members.ready(self._node.now(), who))

    def _announce(self, who: Party, incarnation: int, view: int) -> None:
        hello = self._roster.hellos[who] = self._roster.joining[who]
        came = control.WorkerJoined(
            rank=who.index, incarnation=incarnation, view=view, address=hello.address, host=hello.host
        )
        self._recovery.came_back(who.index)
        self._tell([other for other in self._roster.present() if other != who], came)
        self._node.came(who.index)

    def _enter(self, who: Party) -> None:
        """Everybody reckons with it, so it may begin; unless it was sent home, or told that the run ends."""
        if self._run_state.reason or who not in self._roster.joining:
            return
        hello = self._roster.joining.pop(who)
        self._roster.lost.discard(who)
        self._roster.training.add(who)
        now = self._node.now()
        former = self._totals.new_incarnation(who.index)
        incarnation = (
            "it is new" if who in self._roster.not_started else f"incarnation {self._members.incarnation(who) + 1}"
        )
        self._roster.not_started.discard(who)
        told = {"event": "returned", "reason": f"{incarnation}; {self._roster.count('train')}"}
        self._listener.recorded(Membership(at=now, party=str(who), device=hello.device, host=hello.host, **told))
        self._tell([who], self._plan)
        self._tell([who], control.Go(at=now, samples=self._totals.samples, steps=former.steps))

    def _abort_joins(self, why: str) -> None:
        """All newcomers, since nobody connects them to the server that comes: they may try again."""
        now = self._node.now()
        for who in list(self._roster.joining):
            decisions = self._members.lost(now, who, self._members.incarnation(who), why)
            self.carry_out(decision for decision in decisions if not isinstance(decision, Enter))
