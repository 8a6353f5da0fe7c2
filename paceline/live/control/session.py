"""A party's end of the control plane: it joins the run, learns the plan, reports, and hears when the run is over.

    handshake.py        joins the run: Hello, and connections to the others
    mailbox.py          holds what arrived for the party's own thread
    handlers.py         handles each message on the transport's thread
    directory.py        knows where everybody is, and who takes part
    early_messages.py   holds what reaches a newcomer before its role exists (decided in `core/parties`)
    server_messages.py  sends control messages of a worker to all servers
    reports.py          reports to the coordinator four times a second

A worker goes through these states; the messages in brackets come from the coordinator:

    state       what it does                                       call                     next
    NEW         opens its transport, says Hello                    hello                    WAITING
    WAITING     [Roster] connects to those that it sends to        connect, meet_workers    READYING
    READYING    measures, sends Ready; [Plan] makes its role       tell, expect, enter      PREPARED
    PREPARED    sends Prepared; [Go] starts the clock              took_up, expect          TRAINING
    TRAINING    reports by itself; [Stop], or its data ends        reports.begin, leave     LEFT
    LEFT        answers others; [Finish] reads or saves the model  wait_for_finish, done    SAVED
    SAVED       [Exit]                                             close                    over

A server or the evaluator does the same up to PREPARED and then serves until Exit (`serve`). Two threads meet here: the
party's own thread calls these methods and may wait; the transport's thread only fills the mailbox.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar, assert_never

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import loop_messages, party
from paceline.core.coordination.party import Party
from paceline.core.errors import PeerLost, Stopped
from paceline.core.parties.lifecycle import AwaitTaken, FlushRecords, Say, SendLast, StepAction
from paceline.core.parties.orders import BeginCopies
from paceline.core.role import Role
from paceline.core.sharding import Layout
from paceline.live.control.directory import PartyDirectory
from paceline.live.control.early_messages import EarlyEnvelopes
from paceline.live.control.handlers import MessageHandlers, PartyCallbacks
from paceline.live.control.handshake import Handshake
from paceline.live.control.link_probe import LinkRounds
from paceline.live.control.machine_observer import MachineObserver, NoMachineObserver
from paceline.live.control.mailbox import Mailbox, SharedTexts
from paceline.live.control.reports import Reports
from paceline.live.control.server_messages import ServerMessages
from paceline.live.node.hosted_slice import Carrier
from paceline.live.node.node import Node
from paceline.live.protocol.transport import Envelope, Kind, Transport

M = TypeVar("M")


class Served(Protocol):
    """Does the work of a party that only answers (a server), called on its own thread by `Session.serve`."""

    def begin(self) -> None:
        """Begins to serve: training starts, or has started already."""

    def restore(self, order: control.Restore) -> None:
        """Loads the state that `order` names, since some server was lost."""

    def resume(self) -> None:
        """Continues, since all servers have been restored."""

    def end(self) -> None:
        """Ends the work, since no worker trains any more."""


class Session:
    """Connects a node to the coordinator. Its methods block the party's own thread, never the transport's."""

    def __init__(
        self, transport: Transport, node: Node, *, timeout_s: float = 600.0, observer: MachineObserver | None = None
    ) -> None:
        """`timeout_s` bounds each wait for the coordinator while the run is set up. `observer`: of a recorded run."""
        self.observer = observer or NoMachineObserver()
        self.node, self.transport = node, transport
        self.mailbox = Mailbox(node.me, timeout_s)
        self.directory = PartyDirectory(node.me)
        self.reports = Reports(
            transport, node.me, self.mailbox.may_exit, node.now, lambda act: node.after_replicated(act)
        )
        self._early = EarlyEnvelopes()
        self._servers = ServerMessages(transport, node.calls)
        self.handshake = Handshake(transport, node, self.directory)
        self.handlers = MessageHandlers(
            transport,
            node,
            directory=self.directory,
            mailbox=self.mailbox,
            early=self._early,
            reports=self.reports,
            servers=self._servers,
            observer=self.observer,
        )

    def attach(self, callbacks: PartyCallbacks) -> None:
        """Sets the callbacks for what the control plane tells this party; once, before it sends Ready or Prepared.

        They need the role, which exists only after the plan; until then such messages have no callback.
        """
        self.handlers.attach(callbacks)

    # ---- setting up --------------------------------------------------------------------------------------
    def hello(
        self, coordinator_address: str, device: str, *, speeds: tuple[float, float] = (0.0, 0.0), incarnation: int = 0
    ) -> None:
        """Makes this party known. `speeds`: bytes a second that a server updates, as measured and at most.

        Raises PeerLost when the coordinator cannot be reached.
        """
        self.handshake.hello(coordinator_address, self.handlers, device=device, speeds=speeds, incarnation=incarnation)
        if incarnation:  # the run is going on, and silence is counted
            self.reports.begin()

    def connect(self, parties: Sequence[Party]) -> None:
        """Waits for the roster, and connects to these parties. Raises Stopped, PeerLost or TimedOut."""
        self.expect(control.Roster)
        for other in parties:
            self.reach(other)

    def reach(self, other: Party) -> None:
        """Connects to one more party; those who are connected stay so."""
        self.handshake.reach(other)

    def reach_if_there(self, other: Party) -> None:
        """Connects to that party, if this run has it."""
        if self.has(other):
            self.reach(other)

    def meet_evaluator(self) -> None:
        """Connects to the evaluator, if this run has one; one that is lost just now calls when it is back."""
        with contextlib.suppress(PeerLost):
            self.reach_if_there(party.EVALUATOR)

    def has(self, other: Party) -> bool:
        """Returns True if this run has such a party."""
        return str(other) in self.directory.addresses

    def can_be_called(self, rank: int) -> bool:
        """Returns True for a worker that is there, or was joining before this party heard of it."""
        return self.directory.can_be_called(rank)

    def links(self, servers: int) -> list[LinkRounds | None]:
        """Returns the link from each server, None for one on this host; nothing when none is worth measuring."""
        return self.handshake.links(servers)

    def host_of(self, who: Party) -> str:
        """Returns the host that a party runs on, for messages."""
        return self.directory.host_of(who)

    def reach_all(self, servers: Iterable[Party] = ()) -> None:
        """Connects to all workers, the evaluator and these; returns when each that is still there knows."""
        self.handshake.reach_all(servers)

    def meet_workers(self) -> None:
        """Connects this worker with all others; returns when those know."""
        self.handshake.meet_workers()

    def ways(self) -> tuple[str, ...]:
        """Returns how vectors travel to those that this party has connected to, each way once."""
        return self.handshake.ways()

    def took_up(self) -> None:
        """Says that this party has taken up its plan, where training waits for that. Raises PeerLost."""
        self._carry_out(self.handlers.lifecycle.took_up())

    def enter(self, role: Role, layout: Layout, carrier: Carrier | None = None) -> None:
        """Places the role of a newcomer, while the others train.

        The role hears which workers left and joined since the roster, and what others have sent it meanwhile, in the
        order that `paceline.core.parties.orders` says. No message comes in between.
        """

        def take_up() -> None:
            """Places the role, and catches up with what has happened since the roster."""
            self.node.place(role, layout, carrier)
            self.handlers.catch_up()

        self.node.between_messages(take_up)
        self.node.times.reset()

    # ---- what arrived, for the party's own thread --------------------------------------------------------
    def expect(self, wanted: type[M]) -> M:
        """Returns the next message for this party's own thread. Raises Stopped, PeerLost or TimedOut."""
        return self.mailbox.expect(wanted)

    def within(self, seconds: float) -> Any | None:
        """Returns the next message if one comes within `seconds`; raises it if it is an error."""
        return self.mailbox.within(seconds)

    def until_exchanges(self, count: int) -> Any | None:
        """Returns the next message, or None once all workers together have made `count` exchanges; raises an error."""
        return self.mailbox.until_exchanges(count)

    @property
    def over(self) -> threading.Event:
        """Set when the run is over for this party: Stop, Exit, or no coordinator any more."""
        return self.mailbox.over

    @property
    def stop_reason(self) -> str:
        """Returns why the workers shall stop, or "" while they shall not."""
        return self.mailbox.stop_reason

    @property
    def notice(self) -> str:
        """Returns why this worker ends after its step, "" if it does not; see `worker.preemption_notice`."""
        return self.mailbox.notice

    @notice.setter
    def notice(self, why: str) -> None:
        self.mailbox.notice = why

    @property
    def rate_factor(self) -> float:
        """Returns the operator's factor on the learning rate."""
        return self.mailbox.rate_factor

    @property
    def total_samples(self) -> int:
        """Returns the samples that all workers have trained, as the coordinator last told."""
        return self.mailbox.total_samples

    @property
    def total_exchanges(self) -> int:
        """Returns the exchanges that all workers have made, as the coordinator last told."""
        return self.mailbox.total_exchanges

    @property
    def epochs(self) -> int:
        """Returns the number of whole epochs of leased data that are done."""
        return self.mailbox.epochs

    @property
    def leases(self) -> queue.SimpleQueue[control.Lease | None]:
        """Returns the queue of this worker's leases; None in it means that there will be no other."""
        return self.mailbox.leases

    @property
    def quotas(self) -> queue.SimpleQueue[int]:
        """Returns the queue of this worker's quotas; 0 in it means that no samples are left."""
        return self.mailbox.quotas

    @property
    def shared_values(self) -> SharedTexts:
        """Returns what loops have shared with all workers."""
        return self.mailbox.shared

    @property
    def shares_left(self) -> loop_messages.SharesLeft | None:
        """Returns what workers that are gone have trained of shares, as the evaluator knows it; None if nothing."""
        return self.mailbox.shares_left

    @property
    def departed(self) -> set[int]:
        """Returns the ranks of workers that take no further part."""
        return self.directory.departed

    @property
    def lost_ranks(self) -> set[int]:
        """Returns the ranks of those of them that cannot be asked for anything: they were lost or drained."""
        return self.directory.lost_ranks

    @property
    def late(self) -> bool:
        """Returns True if this party came while training went on."""
        return self.directory.late

    # ---- during training ---------------------------------------------------------------------------------
    def tell(self, message: Any) -> None:
        """Sends a control message to the coordinator. Raises PeerLost."""
        self.transport.send(party.COORDINATOR, Envelope(Kind.CONTROL, message))

    def tell_servers(self, count: int, message: Any) -> None:
        """Sends a control message to the first `count` servers. Raises PeerLost if one is lost for good."""
        self._servers.tell(count, message)

    def tell_rate(self, servers: int, rate: control.Rate) -> None:
        """`rate` holds for all that this worker sends from now on, also to servers that replace these."""
        self._servers.tell_rate(servers, rate)

    def tell_worker(self, rank: int, message: Any) -> bool:
        """Tells a worker something if it is there; returns whether it is."""
        try:
            self.transport.send(party.worker(rank), Envelope(Kind.CONTROL, message))
        except PeerLost:
            return False
        return True

    # ---- the end -----------------------------------------------------------------------------------------
    def leave(self, reason: str, *, drained: bool = False) -> None:
        """Says that this worker takes no further part: to the other workers first, then to the coordinator.

        The order matters: once the coordinator has told the others that this worker left, nothing of it may follow.
        `drained`: it is being drained, and asks to exit at once.
        """
        lifecycle = self.handlers.lifecycle
        self._carry_out(lifecycle.leaves(drained=drained))
        self._carry_out(lifecycle.has_left(reason, drained=drained))

    def _carry_out(self, actions: Iterable[StepAction]) -> None:
        """Carries out what `paceline.core.parties.lifecycle` decides for the party's own thread."""
        for action in actions:
            match action:
                case SendLast():
                    self.node.leave()
                case AwaitTaken(by_servers=by_servers):
                    self.node.await_taken(self.handshake.servers() if by_servers else ())
                case FlushRecords():
                    self.reports.flush()
                case Say(message=message):
                    self.tell(message)
                case _:
                    assert_never(action)

    def wait_for_finish(self) -> control.Finish | None:
        """Waits until nobody trains any more, so that the model is final; None for one that may end before.

        Such a one has handled by then what others had sent it before they knew that it has left. The coordinator
        watches over this wait. Raises PeerLost when the coordinator was lost, or what went wrong on the transport's
        thread.
        """
        while not isinstance(message := self.mailbox.take(), control.Finish | control.Exit):
            if isinstance(message, BaseException) and not isinstance(message, Stopped):
                raise message
        if isinstance(message, control.Finish):
            self.mailbox.total_samples = message.samples
            return message
        self._carry_out(self.handlers.lifecycle.ends_early())
        return None

    def done(self) -> None:
        """Says that this party needs the others no longer, and waits until it may end."""
        self._carry_out(self.handlers.lifecycle.saved(flushed=True))
        self.mailbox.may_exit.wait(self.mailbox.timeout_s)

    def serve(self, served: Served | None = None) -> None:
        """Serves until Exit, for a party that only answers. Its last records are told before anybody may end.

        Raises PeerLost when the coordinator was lost, or what went wrong on the transport's thread.
        """
        self.reports.begin()
        while not isinstance(message := self.mailbox.take(), control.Finish):
            match message:
                case control.Go() if served:
                    served.begin()
                case control.Restore() if served:
                    served.restore(message)
                case BeginCopies() if served:
                    served.resume()
                case BaseException() if not isinstance(message, Stopped):
                    raise message
        if served:
            served.end()
        self._carry_out(self.handlers.lifecycle.saved())
        self.mailbox.may_exit.wait()
        self.check()

    def check(self) -> None:
        """Raises what has ended this party before the run was over, if anything has."""
        self.mailbox.check()

    def shared(self) -> tuple[int, int]:
        """Returns the bytes of vectors that passed by reference, out and in."""
        return self.transport.shared()

    def traffic(self) -> tuple[int, int]:
        """Returns the bytes sent and received."""
        return self.transport.traffic()

    def close(self) -> None:
        """Closes the carrier of means, then the transport, on which it sends, and a recording at last."""
        self.mailbox.may_exit.set()
        if self.node.peers is not None:
            self.node.peers.close()
        self.transport.close()
        self.observer.close()
