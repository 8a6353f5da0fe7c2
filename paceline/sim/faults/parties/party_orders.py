"""What a simulated worker or server does with a message of the coordinator.

`paceline.core.parties` decides, as for live parties; this file carries the actions out: at roles, at calls that are
open, and at the streams between processes. `server_recovery.py` has those that concern replaced servers. What a live
party leaves to its own thread is `LossyMembers.own_thread` here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from paceline.core.coordination import control_messages as control
from paceline.core.parties.early_messages import EarlyMessages
from paceline.core.parties.known_workers import KnownWorkers
from paceline.core.parties.lifecycle import (
    BeginServerView,
    CheckByPlan,
    EndLoop,
    HoldMessages,
    MayExit,
    OwnThread,
    PartyLifecycle,
    Say,
    StepAction,
)
from paceline.core.parties.orders import (
    ConfirmChange,
    OrderAction,
    PartyOrders,
    PassHeld,
    RefuseIncarnation,
    ReleaseBeforeLeave,
    ReportNotUnderWay,
    ReportPending,
    RolesHearJoined,
    RolesHearLeft,
)
from paceline.sim.faults.links.lossy_links import Act, LossyLinks
from paceline.sim.kernel.processes import PendingCall, SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.faulted_driver import FaultedDriver, LossyFaultedMembers


class SimulatedOrders:
    """Carries out orders at the parties of `sim`."""

    def __init__(self, sim: FaultedDriver, members: LossyFaultedMembers, streams: LossyLinks) -> None:
        self._sim, self._members, self._streams = sim, members, streams
        self._known: dict[tuple[str, int], KnownWorkers] = {}  # by process
        self._early: dict[tuple[str, int], EarlyMessages[tuple[Act, tuple[Any, ...]]]] = {}  # of newcomers, by process
        streams.holds, streams.over = self._holds, lambda: members.over

    def known(self, party: SimulatedProcess) -> KnownWorkers:
        """Returns what the process of `party` knows of the workers."""
        if party.process not in self._known:
            self._known[party.process] = KnownWorkers(party.who)
        return self._known[party.process]

    def told(self, party: SimulatedProcess, message: Any) -> None:
        """Does at `party` what follows from a message of the coordinator."""
        match message:
            case control.WorkerLeft() | control.WorkerJoined() | control.Fence() | control.Resume() as order:
                if self._sim.invariants:
                    self._sim.invariants.views.told(party, order)
                for action in self._of(party).told(order):
                    self._carry_out(party, action)
            case _:
                if self._sim.invariants and isinstance(message, control.Roster):
                    self._sim.invariants.views.told(party, message)
                self._carry_on(party, message)

    def says(self, party: SimulatedProcess, actions: Iterable[StepAction]) -> None:
        """Sends what `party` says to the coordinator; the records of its role are in the trace already."""
        for action in actions:
            if isinstance(action, Say):
                self._members.tell(party, action.message)

    def lifecycle(self, party: SimulatedProcess) -> PartyLifecycle:
        """Returns what decides the course of the run at `party`."""
        return PartyLifecycle(party.who, self.known(party))

    def _carry_on(self, party: SimulatedProcess, message: Any) -> None:
        """Does at `party` what follows from a message about the course of the run; its clock runs already."""
        for action in self.lifecycle(party).told(message):
            match action:
                case HoldMessages():
                    early = self._early[party.process] = EarlyMessages()
                    early.begin(late=True)
                case BeginServerView(server_view=view):
                    self._streams.server_views[party.process] = self._members.calls.of(party).server_view = view
                    self._members.incoming.of(party).begin_server_view()
                    if self._sim.message_checks:
                        self._sim.message_checks.servers_went_back(party)
                case CheckByPlan(plan=plan, late=late):
                    if self._sim.message_checks:
                        self._sim.message_checks.planned(party, plan, late=late)
                case EndLoop() if self._members.ends:
                    self._members.ends.stops(party)
                case MayExit() if not self._members.over:
                    self._members.exits_drained(party)
                case MayExit() if self._members.ends:
                    self._members.ends.exits(party)
                case OwnThread(message=message):
                    self._members.own_thread(party, message)
                case _:
                    pass

    def _holds(self, dst: SimulatedProcess, act: Act, args: tuple[Any, ...]) -> bool:
        """Keeps a message that has arrived, if the role that has to see it does not exist yet."""
        early = self._early.get(dst.process)
        if early is None or act not in (self._sim.messaging.asked, self._sim.messaging.heard):
            return False
        src = self._sender(args)
        return early.hold(src.who, src.incarnation, (act, args), needs_role=True)

    @staticmethod
    def _sender(args: tuple[Any, ...]) -> SimulatedProcess:
        """Returns who has sent a question or a Tell, whose arrival has these arguments."""
        _, sender, _ = args
        src = sender.incarnation.party if isinstance(sender, PendingCall) else sender
        assert isinstance(src, SimulatedProcess)
        return src

    def enter(self, newcomer: SimulatedProcess) -> None:
        """Lets the role of a newcomer hear what its process has heard before."""
        for action in self._of(newcomer).enter():
            self._carry_out(newcomer, action)

    def _passes_held(self, newcomer: SimulatedProcess, *, of_leavers: bool) -> None:
        """Passes on what was held for the role of a newcomer."""
        early = self._early.get(newcomer.process)
        if early is None:
            return
        release = early.release_of_leavers if of_leavers else early.release
        while held := release():
            for act, args in held:
                if self._sim.invariants and not of_leavers:  # the process of one that left may be lost by now
                    self._sim.invariants.deliveries.heard(self._sender(args), newcomer)
                act(*args)
        if not of_leavers:
            del self._early[newcomer.process]

    def servers_went_back(self, party: SimulatedProcess) -> None:
        """Drops what is held of servers, which are in an earlier state now."""
        if early := self._early.get(party.process):
            early.servers_went_back()

    def _of(self, party: SimulatedProcess) -> PartyOrders:
        return PartyOrders(party.who, self.known(party))

    def _carry_out(self, party: SimulatedProcess, action: OrderAction) -> None:
        members, workers = self._members, self._sim.world.workers
        match action:
            case RefuseIncarnation(rank=rank, incarnation=incarnation):
                dead = members.process(workers[rank].name, incarnation)
                self.stops_hearing(party, dead)
                members.calls.worker_ended(party, dead)
                if early := self._early.get(party.process):
                    early.refuse(dead.who, incarnation)
            case ReleaseBeforeLeave(rank=rank, incarnation=incarnation):
                if early := self._early.get(party.process):
                    early.left(workers[rank].who, incarnation)
            case PassHeld(of_leavers=of_leavers):
                self._passes_held(party, of_leavers=of_leavers)
            case RolesHearLeft(rank=rank):
                for role in self.roles(party):
                    members.hears_gone(role, rank)
            case RolesHearJoined(rank=rank):
                for role in self.roles(party):
                    members.hears_came(role, rank)
            case ConfirmChange(view=view):
                members.after_replicated(party, lambda: members.tell(party, control.Aware(view=view)))
            case ReportPending() | ReportNotUnderWay():
                if self._sim.leasing:
                    self._sim.leasing.reports(party, action)
            case _:
                assert members.servers is not None
                members.servers.carry_out(party, action)

    def roles(self, party: SimulatedProcess) -> Iterable[SimulatedProcess]:
        """Returns all roles of the process of `party`: a server also carries means."""
        if party.kind != "server":
            return (party,) if party.kind == "worker" else ()
        return [other for other in self._sim.world.others if other.process == party.process]

    def stops_hearing(self, party: SimulatedProcess, dead: SimulatedProcess) -> None:
        """Lets `party` take nothing more of an incarnation that was declared lost."""
        self._streams.fence(party, dead)
        if self._sim.invariants:
            self._sim.invariants.deliveries.fenced(party, dead)
