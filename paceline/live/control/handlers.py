"""What a process does with each message that reaches it, on the transport's thread or one that stands in for it.

A message passes these, in this order:

    permission   may this sender send it?  else ProtocolError (`permissions.py`)
    bounds       rejected, or brought to its bounds (`paceline.live.node.message_checks`)
    CONTROL      handled here; what the party's own thread waits for goes to its mailbox
    all else     to the node, which has the role; a newcomer without a role holds it (`early_messages.py`)

    CONTROL message                        then
    Roster, Plan, Go, Stop                 what follows is decided in `paceline.core.parties.lifecycle`, for live and
    Restore, Finish, Exit                  simulated runs; what takes its time goes to the mailbox of the own thread
    WorkerLeft, WorkerJoined               the same, in `paceline.core.parties.orders`; a Resume of a server is carried
    NewcomerLost, Resume, Fence            out by its own thread
    Total, Quota, Lease, Drawn, ShareTaken numbers and samples for the loop
    Rate, Capture                          callbacks
    Explain                                a stack trace of all threads to standard error
    Drain, ScaleRate, SharedValue          noted for the loop, which looks before each step
    SaveNow                                to the mailbox

Nothing here may wait: this thread also moves the bytes of every connection.
"""

from __future__ import annotations

import contextlib
import faulthandler
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import loop_messages, party
from paceline.core.coordination.party import Party
from paceline.core.effects import Data
from paceline.core.errors import CoordinatorGone, ProtocolError, Stopped
from paceline.core.parties.lifecycle import (
    BeginServerView,
    CheckByPlan,
    EndLoop,
    HoldMessages,
    LifecycleAction,
    MayExit,
    OwnThread,
    PartyLifecycle,
    StartClock,
)
from paceline.core.parties.orders import (
    BeginCopies,
    ConfirmChange,
    OrderAction,
    PartyOrders,
    PassHeld,
    RefuseIncarnation,
    ReleaseBeforeLeave,
    RepeatCalls,
    RepeatRate,
    ReportNotUnderWay,
    ReportPending,
    RolesHearJoined,
    RolesHearLeft,
    VoidCalls,
)
from paceline.live.adaptive_spin import share_host
from paceline.live.control import permissions
from paceline.live.control.directory import PartyDirectory
from paceline.live.control.early_messages import EarlyEnvelopes
from paceline.live.control.machine_observer import MachineObserver
from paceline.live.control.mailbox import Mailbox
from paceline.live.control.reports import Reports
from paceline.live.control.server_messages import ServerMessages
from paceline.live.node.hosted_slice import Declined
from paceline.live.node.node import Node
from paceline.live.node.published_state import ReadState, StateGone
from paceline.live.protocol.message_parts import MessageParts
from paceline.live.protocol.row_packing import Packed
from paceline.live.protocol.transport import CONTROL, Envelope, Kind, LossCause, Transport

COORDINATOR_GONE = "the coordinator is gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyCallbacks:
    """Holds what a party does, on the transport's thread, when the control plane tells it something.

    on_party_lost        called when the connection to another party was lost
    on_worker_joined     called when worker `rank` takes part from now on
    on_rate              called with new hyperparameters of the optimizer, for what worker `rank` sends from now on
    on_capture           called when a state is to be captured
    on_server_replaced   called before the calls that a lost server left unanswered are repeated
    pending_of           returns the leased samples of worker `rank` that wait for a round
    """

    on_party_lost: Callable[[Party], None] = lambda who: None
    on_worker_joined: Callable[[int], None] = lambda rank: None
    on_rate: Callable[[int, control.Rate], None] = lambda rank, rate: None
    on_capture: Callable[[control.Capture], None] = lambda order: None
    on_server_replaced: Callable[[], None] = lambda: None
    pending_of: Callable[[int], Data] = lambda rank: ()


NO_CALLBACKS = PartyCallbacks()


class MessageHandlers:
    """Handles messages and losses for a worker, a server or the evaluator; it is their transport's `Handler`."""

    def __init__(
        self,
        transport: Transport,
        node: Node,
        *,
        directory: PartyDirectory,
        mailbox: Mailbox,
        early: EarlyEnvelopes,
        reports: Reports,
        servers: ServerMessages,
        observer: MachineObserver,
    ) -> None:
        self._transport, self._node, self._me = transport, node, node.me
        self._directory, self._mailbox, self._early = directory, mailbox, early
        self._reports, self._servers = reports, servers
        self._orders = observer.observe("orders", PartyOrders(node.me, directory))
        self.lifecycle = observer.observe("lifecycle", PartyLifecycle(node.me, directory))
        self._callbacks = NO_CALLBACKS
        self._parts = MessageParts()

    def attach(self, callbacks: PartyCallbacks) -> None:
        """Sets the callbacks. Raises AssertionError the second time: a party has one set of them."""
        assert self._callbacks is NO_CALLBACKS, f"{self._me} has callbacks already"
        self._callbacks = callbacks

    # ---- what a transport calls --------------------------------------------------------------------------
    def deliver(self, src: Party, envelope: Envelope) -> None:
        """Handles a message. What a worker may not send, or what breaks a rule, is a strike and is dropped.

        A server has such a worker expelled. Another worker goes on without the message: if it closed the connection,
        means with that worker would fail, and with them the run. Anybody else's raises ProtocolError, which ends the
        connection.
        """
        try:
            self._deliver(src, envelope)
        except ProtocolError as error:
            if src.kind != "worker":
                raise
            self._node.message_checks.strike(src, str(error), at_once=True)
            # Or the sender would wait for an answer, and the run for the sender.
            if isinstance(envelope.message, ReadState):
                self._node.out.post_if_there(src, Envelope(Kind.REPLY, StateGone(), envelope.id))
            elif envelope.kind == Kind.CALL and self._me.kind == "worker":
                self._node.out.post_if_there(src, Envelope(Kind.REPLY, Declined(), envelope.id))

    def room_for(
        self, src: Party, kind: Kind, id: int, cls: type, lengths: Sequence[int], shared: Sequence[Any]
    ) -> list[Any]:
        """Returns the vectors to receive a message into. Raises ProtocolError if it may not be sent.

        This is asked before the message has arrived, so that nobody can fill memory with what will be rejected.
        """
        permissions.check_class(src, self._me, kind, cls)
        return self._node.room_for(src, kind, id, lengths, shared)

    def lost(self, src: Party, why: str, cause: LossCause = LossCause.CLOSED) -> None:
        """Handles a lost connection.

        The loss of the coordinator ends this party. The loss of another party ends only the calls to it, and what
        follows from that is decided by the coordinator.
        """
        if src != party.COORDINATOR:
            if cause is LossCause.BROKE_PROTOCOL and (src.kind, self._me.kind) == ("worker", "server"):
                # The worker cannot stay: to it this server is lost; it would wait for another, and the others for it.
                self._node.message_checks.strike(src, why, at_once=True)
            self._node.lost(src, why)
            self._callbacks.on_party_lost(src)
        elif not self._mailbox.may_exit.is_set():  # after Exit everybody ends
            self.failed(CoordinatorGone(f"{COORDINATOR_GONE} ({why})"))

    def failed(self, error: BaseException) -> None:
        """Wakes this party's own thread with `error`, wherever it waits."""
        self._mailbox.error = error
        self._end(error)
        self._mailbox.may_exit.set()

    # ---- messages ----------------------------------------------------------------------------------------
    def _deliver(self, src: Party, envelope: Envelope) -> None:
        """Checks a message, then handles it, passes it to the node, or keeps it for a later role."""
        if not permissions.admits(self._node, src, envelope):
            return
        if envelope.kind == CONTROL:
            self._control(src, envelope.message)
        elif not (self._early.holding and self._early.hold(src, self._transport.incarnation_of(src), envelope)):
            self.pass_on(src, envelope)

    def pass_on(self, src: Party, envelope: Envelope) -> None:
        """Passes a message to the node.

        A packed message is unpacked first. The message inside is checked like one that came alone, or packing would be
        a way around permissions and bounds.
        """
        packed = type(envelope.message) is Packed and self._node.unpack(src, envelope)
        if not packed or permissions.admits(self._node, src, envelope):
            self._node.deliver(src, envelope)

    def _control(self, src: Party, message: Any) -> None:
        """Handles a message of the control plane, on the net thread.

        What a party's own thread waits for goes into its mailbox. The rest is done here and must not wait.
        """
        match message:
            case control.Total() as total:
                self._mailbox.count(total)
            case control.Quota() | control.Lease() | loop_messages.Drawn() | loop_messages.ShareTaken() as samples:
                self._mailbox.give(samples)
            case control.Rate() as rate:
                self._callbacks.on_rate(src.index, rate)
            case control.Capture() as order:
                self._callbacks.on_capture(order)
            case (
                control.WorkerLeft()
                | control.WorkerJoined()
                | control.NewcomerLost()
                | control.Fence()
                | control.Resume() as order
            ):
                for action in self._orders.told(order):
                    self._carry_out(action)
            case loop_messages.Drain(reason=reason):
                self._mailbox.notice = reason
            case loop_messages.ScaleRate(factor=factor):
                self._mailbox.rate_factor = factor
            case loop_messages.SharedValue() as shared:
                self._mailbox.shared.arrived(shared)
            case loop_messages.SharesLeft() as left:
                self._mailbox.shares_left = left
            case control.Explain():
                with contextlib.suppress(OSError, ValueError, AttributeError):  # a standard error that is no file
                    faulthandler.dump_traceback(sys.stderr)
            case _:
                self._lifecycle(message)

    def _lifecycle(self, message: Any) -> None:
        """Handles what the coordinator says of the course of the run, when all parts of it are here."""
        if (message := self._parts.join(message)) is None:
            return
        for action in self.lifecycle.told(message):
            self._carry_on(action)

    def _carry_on(self, action: LifecycleAction) -> None:
        """Carries out what must hold before the next message is handled; the party's own thread may take its time."""
        match action:
            case HoldMessages():
                self._early.begin(late=True)
            case BeginServerView(server_view=view):
                self._node.begin_server_view(view)
            case CheckByPlan(plan=plan, late=late):
                self._node.message_checks.planned(plan, late=late)
                share_host(self._directory.computing_here())
            case StartClock(go=go):
                self._node.start_clock(go.at)  # at once, so that no message is dated by the clock from before
                self._mailbox.total_samples = go.samples
            case EndLoop(reason=reason):
                self._mailbox.stop_reason = reason
                if not self._node.has_loop:  # nobody is in a step: a newcomer, or a worker of a key-value store
                    self._node.stop(Stopped(reason))
                self._mailbox.end(Stopped(reason))
            case MayExit():
                self._mailbox.exit()
            case OwnThread(message=message):
                self._mailbox.put(message)
            case _:
                assert_never(action)

    def catch_up(self) -> None:
        """Lets the role of a newcomer hear what came before it existed; called between two messages."""
        for action in self._orders.enter():
            self._carry_out(action)

    # ---- what follows from an order ----------------------------------------------------------------------
    def _carry_out(self, action: OrderAction) -> None:
        """Carries out an action: the transport's and the role's here, those about servers in `_about_servers`."""
        match action:
            case RefuseIncarnation(rank=rank, incarnation=incarnation):
                self._transport.drop(party.worker(rank), incarnation, "it was declared lost")
                self._early.refuse(party.worker(rank), incarnation)
            case ReleaseBeforeLeave(rank=rank, incarnation=incarnation):
                self._early.left(party.worker(rank), incarnation)
            case PassHeld(of_leavers=of_leavers):
                release = self._early.release_of_leavers if of_leavers else self._early.release
                while held := release():
                    for src, envelope in held:
                        if self._node.fits(src, envelope):
                            self.pass_on(src, envelope)
            case RolesHearLeft(rank=rank):
                self._node.gone(rank)
            case RolesHearJoined(rank=rank):
                self._node.came(rank)
                self._callbacks.on_worker_joined(rank)
            case ConfirmChange(view=view):
                self._node.after_replicated(lambda: self._tell(control.Aware(view=view)))
            case ReportPending(rank=rank, incarnation=incarnation):
                pending = self._callbacks.pending_of(rank)
                fenced = control.Fenced(rank=rank, incarnation=incarnation, pending=pending)
                self._reports.tell_settled_when_copied(fenced)
            case _:
                self._about_servers(action)

    def _about_servers(self, action: BeginCopies | RepeatRate | ReportNotUnderWay | RepeatCalls | VoidCalls) -> None:
        """Carries out what follows when all servers are restored."""
        match action:
            case BeginCopies():  # a server's own thread, which has restored it
                self._mailbox.put(action)
            case RepeatRate():
                self._servers.repeat_rate()
            case ReportNotUnderWay():
                self._callbacks.on_server_replaced()
            case RepeatCalls(servers=servers):
                self._node.out.ask_again([party.server(server) for server in servers])
            case VoidCalls(server_view=view, rolled_back=rolled_back):
                self._early.servers_went_back()
                self._node.go_back(view, rolled_back=rolled_back)
            case _:
                assert_never(action)

    def _tell(self, message: Any) -> None:
        """Sends a message to the coordinator."""
        self._transport.send(party.COORDINATOR, Envelope(Kind.CONTROL, message))

    def _end(self, error: BaseException) -> None:
        """Ends this party's part with an error: wakes all who wait."""
        self._mailbox.over.set()
        self._node.stop(error)
        self._mailbox.end(error)
