"""A party's end of the control plane: says hello, learns the plan, reports, and hears when it is over."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import os
import queue
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from paceline.core.effects import Data
from paceline.core.errors import PeerLost, ProtocolError, Stopped, TimedOut
from paceline.core.role import Role
from paceline.core.sharding import Layout
from paceline.live import party
from paceline.live.control import permissions
from paceline.live.control.link_probe import LinkRounds, timed_look
from paceline.live.control.reports import Reports
from paceline.live.host_info import cores
from paceline.live.node.hosted_slice import Carrier
from paceline.live.node.node import Node
from paceline.live.node.published_state import PRESENCE, ReadState, StateGone
from paceline.live.party import Party
from paceline.live.protocol import control_messages as control
from paceline.live.protocol import loop_messages
from paceline.live.protocol.transport import CONTROL, Broken, Envelope, Kind, Transport

M = TypeVar("M")

COORDINATOR_GONE = "the coordinator is gone"


class Served(Protocol):
    """What is behind a party that only answers. On its own thread."""

    def begin(self) -> None:
        """Training starts, or has."""

    def restore(self, order: control.Restore) -> None:
        """Some server was lost, and all take up what `order` says."""

    def resume(self) -> None:
        """All servers have done so."""

    def end(self) -> None:
        """Nobody trains any more."""


class Session:
    """Connects a node to the coordinator. Its methods block the party's own thread, never the transport's."""

    def __init__(self, transport: Transport, node: Node, *, timeout_s: float = 600.0) -> None:
        """`timeout_s` bounds each wait for the coordinator while the run is being set up."""
        self.node = node
        self.over = threading.Event()  # the run is over: Stop, Exit, or no coordinator any more
        self.stop_reason = ""
        self.notice = (
            ""  # why this worker is to go home after its step; see `paceline.runtime.worker.preemption_notice`
        )
        self.total_samples = 0
        self._transport, self._timeout_s = transport, timeout_s
        self._inbox: queue.Queue[Any] = queue.Queue()
        self._exit = threading.Event()
        self.reports = Reports(transport, node.me, self._exit)
        self._rate: tuple[int, control.Rate] | None = None  # to so many servers, told by this party
        self._error: BaseException | None = None  # why this party cannot go on
        self._addresses: dict[str, str] = {}
        self._reached: set[Party] = set()
        self._hosts: dict[str, str] = {}
        self._incarnations: dict[int, int] = {}  # of workers, by rank, where it is not the first
        self._joining: tuple[int, ...] = ()  # newcomers, of which this one said hello last
        self.late = False  # this party came when the run was going on
        self._early: list[tuple[Party, Envelope]] | None = None  # what others say to one that has no role yet
        self._came_before: set[int] = set()  # workers that came while this one had no role yet
        self._holding = threading.Lock()
        self.departed: set[int] = set()  # workers that take no further part
        self.lost_ranks: set[int] = set()  # those of them that cannot be asked for anything
        self.on_lost: Callable[[Party], None] = lambda who: None
        self.on_came: Callable[[int], None] = lambda rank: None  # a worker that takes part from now on
        self.after_replicated: Callable[[Callable[[], None]], None] = lambda act: (
            act()
        )  # by who takes this one's place, too
        self.on_rate: Callable[[int, control.Rate], None] = lambda rank, rate: None
        self.on_capture: Callable[[control.Capture], None] = lambda order: None
        self.on_replaced: Callable[[], None] = lambda: None  # before what is not answered is asked once more
        self.pending_of: Callable[[int], Data] = lambda rank: ()  # leased samples of a worker that wait for a round
        self.leases: queue.SimpleQueue[control.Lease | None] = queue.SimpleQueue()  # None: there will be no other
        self.epochs = 0  # whole ones, of leased data
        self.quotas: queue.SimpleQueue[int] = queue.SimpleQueue()  # 0: no more samples are left
        self.dealt: dict[int, queue.SimpleQueue[loop_messages.Drawn | None]] = {}  # by data set; None: the run is over

    # ---- setting up --------------------------------------------------------------------------------------
    def hello(
        self, coordinator_address: str, device: str, *, speeds: tuple[float, float] = (0.0, 0.0), incarnation: int = 0
    ) -> None:
        """Make this party known. `speeds`: bytes a second that a server updates, and how many it may be in truth.

        Raises PeerLost when the coordinator cannot be reached.
        """
        self._transport.open(self)
        self._transport.connect(party.COORDINATOR, coordinator_address)
        hello = control.Hello(
            address=self._transport.address,
            pid=os.getpid(),
            host=socket.gethostname(),
            device=device,
            bytes_per_second=speeds[0],
            bytes_per_second_max=speeds[1],
            incarnation=incarnation,
            cores=cores(),
        )
        self.tell(hello)
        if incarnation:  # the run is going on, and silence is counted
            self.reports.begin()

    def connect(self, parties: Sequence[Party]) -> None:
        """Learn where everybody is, and connect to these."""
        self.expect(control.Roster)
        for other in parties:
            self.reach(other)

    def reach(self, other: Party) -> None:
        """Connect to one more party; those who are connected stay so."""
        incarnation = self._incarnations.get(other.index, 0) if other.kind == "worker" else 0
        self._transport.connect(other, self._addresses[str(other)], incarnation)
        self._reached.add(other)

    def reach_if_there(self, other: Party) -> None:
        """The same, if this run has such a party."""
        if self.has(other):
            self.reach(other)

    def meet_evaluator(self) -> None:
        """Connects to the evaluator, if this run has one; one that is lost just now calls when it is back."""
        with contextlib.suppress(PeerLost):
            self.reach_if_there(party.EVALUATOR)

    def has(self, other: Party) -> bool:
        """Does this run have such a party?"""
        return str(other) in self._addresses

    def can_be_called(self, rank: int) -> bool:
        """Is that worker there, or on its way in since before this party knew of it?"""
        return rank not in self.lost_ranks or rank in self._joining

    def links(self, servers: int) -> list[LinkRounds | None]:
        """Returns the link from each server, None for one on this host; nothing when none is worth measuring."""
        here = self._hosts.get(str(self.node.me))
        others = [self._hosts.get(str(party.server(s))) != here for s in range(servers)]
        if servers < 2 or not any(others):
            return []
        looks = (functools.partial(timed_look, self.node, party.server(s)) for s in range(servers))
        return [LinkRounds(look) if other else None for look, other in zip(looks, others, strict=True)]

    def host_of(self, who: Party) -> str:
        return self._hosts.get(str(who), "")

    def reach_all(self, servers: Iterable[Party] = ()) -> None:
        """Connect to all workers and the evaluator, and to these; returns when each that is still there knows.

        Nobody calls the lost: where a whole host is gone, each of them would cost the time of a call.
        """
        others = [who for who in map(Party.parse, self._addresses) if who.kind in ("worker", "evaluator")]
        there = [who for who in others if who.kind != "worker" or who.index not in self.lost_ranks]
        for who in (*there, *servers):
            with contextlib.suppress(PeerLost):  # the coordinator will hear of it, too
                self.reach(who)
                self.node.read_state_of(who, PRESENCE)

    def meet_workers(self) -> None:
        """Connect to all other workers: to those of lower rank from here, the others call. Returns when those know.

        A newcomer calls all that are here, and those newcomers that came before it: nobody else would.
        """
        me = self.node.me.index
        workers = [who for who in map(Party.parse, self._addresses) if who.kind == "worker" and who.index != me]
        called = [who for who in workers if who.index < me]
        if self.late:
            called = [who for who in workers if who.index not in self.departed or who.index in self._joining]
        for other in called:
            try:
                self.reach(other)
            except PeerLost:
                if other.index not in self._joining:  # such a one may be lost again without anybody hearing of it
                    raise
        self.node.neighbours.meet([who.index for who in workers], [who.index for who in called])

    def expect(self, wanted: type[M]) -> M:
        """The next message for this party's own thread. Raises Stopped, PeerLost or TimedOut."""
        message = self.within(self._timeout_s)
        if message is None:
            raise TimedOut(f"{self.node.me} waited {self._timeout_s:.0f} s for {wanted.__name__}")
        if not isinstance(message, wanted):
            raise ProtocolError(f"{self.node.me} expected {wanted.__name__}, got {type(message).__name__}")
        return message

    # ---- while training goes on --------------------------------------------------------------------------
    def tell(self, message: Any) -> None:
        self._transport.send(party.COORDINATOR, Envelope(Kind.CONTROL, message))

    def enter(self, role: Role, layout: Layout, carrier: Carrier | None = None) -> None:
        """Of a newcomer: take up `role`, which hears who is gone, and what others have said to it already."""

        def take_up() -> None:
            self.node.place(role, layout, carrier)
            for rank in sorted(self.departed):
                self.node.gone(rank)
            for rank in sorted(self._came_before - self.departed):
                self.node.came(rank)  # what the role has taken over from another worker may be older than that
            with self._holding:
                early, self._early = self._early or [], None
            for src, envelope in early:
                self.node.deliver(src, envelope)

        self.node.between_messages(take_up)
        self.node.times.reset()

    def tell_servers(self, count: int, message: Any) -> None:
        """Raises PeerLost where one is lost for good."""
        for shard in range(count):
            try:
                self._transport.send(party.server(shard), Envelope(Kind.CONTROL, message))
            except PeerLost:
                if not self.node.calls.waits_for(party.server(shard)):
                    raise

    def tell_worker(self, rank: int, message: Any) -> bool:
        """Tells a worker something if it is there; returns whether it is."""
        try:
            self._transport.send(party.worker(rank), Envelope(Kind.CONTROL, message))
        except PeerLost:
            return False
        return True

    def tell_rate(self, servers: int, rate: control.Rate) -> None:
        """For what this worker sends from now on, also to servers that are replaced later; raises as `tell_servers`."""
        self._rate = servers, rate
        self.tell_servers(*self._rate)

    def leave(self, reason: str, *, home: bool = False) -> None:
        """Say that this worker takes no further part: to the other workers first, then to the coordinator.

        `home`: that it would end at once.
        """
        self.node.leave()
        for server in sorted(who for who in self._reached if home and who.kind == "server"):
            # Nothing of what this worker sent may be on its way when it is gone; but the run may end just now.
            with contextlib.suppress(PeerLost, Stopped):
                self.node.read_state_of(server, PRESENCE)
        self.reports.flush()
        self.tell(control.Left(reason=reason, home=home))

    def wait_for_finish(self) -> control.Finish | None:
        """Until nobody trains any more, so that the model is final; None for one that may end before.

        The coordinator watches over this wait.
        Raises PeerLost when the coordinator vanished, or what went wrong on the transport's thread.
        """
        while not isinstance(message := self._inbox.get(), control.Finish | control.Exit):
            if isinstance(message, BaseException) and not isinstance(message, Stopped):
                raise message
        return message if isinstance(message, control.Finish) else None

    def within(self, seconds: float) -> Any | None:
        """The next message for this party's own thread if one comes within `seconds`; raises it if it is an error."""
        try:
            message = self._inbox.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(message, BaseException):
            raise message
        return message

    def done(self) -> None:
        """Say that this party needs the others no longer, and wait until it may end."""
        self.tell(control.Saved())
        self._exit.wait(self._timeout_s)

    def serve(self, served: Served | None = None) -> None:
        """For a party that only answers: until Exit. What it noted last is told before anybody may end.

        Raises PeerLost when the coordinator vanished, or what went wrong on the transport's thread.
        """
        self.reports.begin()
        while not isinstance(message := self._inbox.get(), control.Finish):
            match message:
                case control.Go() if served:
                    served.begin()
                case control.Restore() if served:
                    served.restore(message)
                case control.Resume() if served:
                    served.resume()
                case BaseException() if not isinstance(message, Stopped):
                    raise message
        if served:
            served.end()
        self.reports.flush()
        self.tell(control.Saved())
        self._exit.wait()
        self.check()

    def check(self) -> None:
        """Raises what has ended this party before the run was over, if anything has."""
        if self._error is not None:
            raise self._error

    def ways(self) -> tuple[str, ...]:
        """How vectors travel to those that this party has connected to, each way once."""
        return tuple(sorted({self._transport.way_to(other) for other in self._reached}))

    def shared(self) -> tuple[int, int]:
        return self._transport.shared()

    def traffic(self) -> tuple[int, int]:
        return self._transport.traffic()

    @property
    def transport(self) -> Transport:
        return self._transport

    def close(self) -> None:
        self._exit.set()
        if self.node.peers is not None:
            self.node.peers.close()
        self._transport.close()

    # ---- on the transport's thread -----------------------------------------------------------------------
    def deliver(self, src: Party, envelope: Envelope) -> None:
        """Hears a message. A server has a worker expelled whose message cannot be.

        Every other party raises ProtocolError for such a message, which ends the connection.
        """
        try:
            self._deliver(src, envelope)
        except ProtocolError as error:
            if src.kind != "worker" or self.node.me.kind != "server":
                raise
            self.node.admission.strike(src, str(error), at_once=True)
            if isinstance(envelope.message, ReadState):  # lest the run waits at its end for one that waits for this
                self.node.out.post_if_there(src, Envelope(Kind.REPLY, StateGone(), envelope.id))

    def _deliver(self, src: Party, envelope: Envelope) -> None:
        permissions.check(src, self.node.me, envelope)
        if not self.node.admits(src, envelope):
            return
        if envelope.kind != CONTROL:
            if not self._hold(src, envelope):
                self.node.deliver(src, envelope)
            return
        match envelope.message:
            case control.Total(samples=samples, epochs=epochs):
                self.total_samples, self.epochs = samples, epochs
            case control.Quota() | loop_messages.Drawn() | control.Lease() as given:
                self._receive_samples(given)
            case control.Fence(rank=rank, incarnation=incarnation):
                self.reports.tell_settled()
                self.tell(control.Fenced(rank=rank, incarnation=incarnation, pending=self.pending_of(rank)))
            case control.Gone(rank=rank, lost=lost, incarnation=incarnation):
                self.departed.add(rank)
                if lost:
                    self.lost_ranks.add(rank)
                    # It may wake up and go on.
                    self._transport.drop(party.worker(rank), incarnation, "it was given up")
                self.node.gone(rank)
            case control.Roster() as roster:
                self._learn(roster)
                self._inbox.put(roster)
            case control.Plan() as plan:
                self.node.admission.planned(plan, late=self.late)
                self._inbox.put(plan)
            case control.WorkerJoined() as came:
                self._meet(came)
            case control.Rate() as rate:
                self.on_rate(src.index, rate)
            case control.Capture() as order:
                self.on_capture(order)
            case control.Resume(undone=False, replaced=replaced) if self.node.me.kind == "worker":
                self._repeat_rate()
                self.on_replaced()
                self.node.out.ask_again([party.server(server) for server in replaced])
            case control.Resume(server_view=view, undone=undone) if self.node.me.kind != "server":
                self._repeat_rate()
                self.node.go_back(view, undone=undone)
            case control.Stop(reason=reason):
                self.stop_reason = reason
                self._end(Stopped(reason))
            case control.Go() as go:
                self.node.start_clock(go.at)  # here, so that no message of a worker is dated by the time before
                self.total_samples = go.samples
                self._inbox.put(go)
            case control.Explain():
                with contextlib.suppress(OSError, ValueError, AttributeError):  # a standard error that is no file
                    faulthandler.dump_traceback(sys.stderr)
            case control.Exit():
                self.over.set()
                self._exit.set()
                self._inbox.put(envelope.message)
            case message:
                self._inbox.put(message)

    def _receive_samples(self, given: control.Quota | loop_messages.Drawn | control.Lease) -> None:
        """For this party's own thread, which has asked for them."""
        match given:
            case control.Quota(samples=samples):
                self.quotas.put(samples)
            case loop_messages.Drawn(stream=stream) as drawn:
                self.dealt[stream].put(drawn)
            case control.Lease() as lease:
                self.leases.put(lease)

    def _repeat_rate(self) -> None:
        """Servers that go on from an earlier state have the rate of that time; what is pushed next needs today's."""
        told = None
        while self._rate is not None and told is not self._rate:  # this party's own thread may tell another meanwhile
            told = self._rate
            for server in range(told[0]):
                with contextlib.suppress(PeerLost):  # there will be another Resume, or the run ends
                    self._transport.send(party.server(server), Envelope(Kind.CONTROL, told[1]))

    def _hold(self, src: Party, envelope: Envelope) -> bool:
        """Is it for the role that this newcomer has not taken up yet, and so kept until then?"""
        with self._holding:
            held = (
                self._early is not None and envelope.kind != Kind.REPLY and not isinstance(envelope.message, ReadState)
            )
            if held:
                assert self._early is not None
                self._early.append((src, envelope))
            return held

    def _learn(self, roster: control.Roster) -> None:
        """Here, so that what is heard of others after it is not forgotten when it is looked at."""
        self._addresses, self._hosts = dict(roster.addresses), dict(roster.hosts)
        self._incarnations = dict(enumerate(roster.incarnations))
        self.late = bool(roster.incarnations)
        self._early = [] if self.late else None
        self.node.begin_server_view(roster.server_view)
        own = (
            {self.node.me.index} if self.node.me.kind == "worker" else set()
        )  # an earlier incarnation of this worker is gone
        self.departed, self.lost_ranks = set(roster.gone) - own, set(roster.lost) - own
        self._joining = roster.joining

    def _meet(self, came: control.WorkerJoined) -> None:
        self._addresses[str(party.worker(came.rank))] = came.address
        self._hosts[str(party.worker(came.rank))] = came.host
        self._incarnations[came.rank] = came.incarnation
        self.departed.discard(came.rank)
        self.lost_ranks.discard(came.rank)
        if self._early is not None:
            self._came_before.add(came.rank)
        self.node.came(came.rank)
        self.on_came(came.rank)
        self.after_replicated(lambda: self.tell(control.Aware(view=came.view)))

    def room_for(
        self, src: Party, kind: Kind, id: int, cls: type, lengths: Sequence[int], shared: Sequence[Any]
    ) -> list[Any]:
        permissions.check_class(src, self.node.me, kind, cls)
        return self.node.room_for(src, kind, id, lengths, shared)

    def lost(self, src: Party, why: str) -> None:
        """Losing the coordinator ends this party; losing anybody else only the calls that were open at it."""
        if src != party.COORDINATOR:
            if isinstance(why, Broken) and (src.kind, self.node.me.kind) == ("worker", "server"):
                # To a worker that stays, this server is lost: it would wait for another one, and the others for it.
                self.node.admission.strike(src, str(why), at_once=True)
            self.node.lost(src, why)
            self.on_lost(src)
        elif not self._exit.is_set():  # after Exit everybody goes home
            self.failed(PeerLost(f"{COORDINATOR_GONE} ({why})"))

    def failed(self, error: BaseException) -> None:
        """Wakes this party's own thread with `error`, wherever it waits."""
        self._error = error
        self._end(error)
        self._exit.set()

    def _end(self, error: BaseException) -> None:
        self.over.set()
        self.node.stop(error)
        self._inbox.put(error)
        self.leases.put(None)
        self.quotas.put(0)
        for dealt in list(self.dealt.values()):
            dealt.put(None)
