"""One party of a run: its roles, the calls it has open and those it has not answered yet.

Two threads meet here. The transport's thread brings messages (`deliver`); the party's own thread moves the loop
box on (`advance`). A lock keeps the roles to one of them at a time, so `on` is never interleaved with `run`.

    effect of the role          becomes
    Compute, Train              the return value of `advance`; the caller does it and passes the result to the next call
    Call                        CALL envelopes, one a slice; the loop waits for all REPLYs (`PendingReply`)
    Tell                        TELL envelopes
    Reply                       a REPLY to the oldest open CALL of that worker (`IncomingCalls`)
    Mean                        by the carrier, if the workers carry means; else a call to the servers
    Start, Wait                 the same as Call or Mean, waited for later

    envelope                    goes to
    MEAN                        the workers' own means (`peers`)
    REPLY                       the `PendingReply` of its number; too late or void: ignored
    CALL of ReadState           what this party publishes (`published`), without its role; of PRESENCE and TAKEN, behind
                                all that the loop sends; of TAKEN, when a copy has all that this party has
    CALL, TELL                  `on` of the role, or the server of means, of its slice
    any, of an older view       dropped, between servers and others: what it belongs to was rolled_back
"""

from __future__ import annotations

import functools
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, assert_never

from paceline.codec.encoded import Encoded
from paceline.core.collective.mean_server import Part
from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.core.effects import Compute, Mean, Reply, Tell, Train
from paceline.core.errors import PeerLost, ProtocolError, Stopped, Undone, Unexpected, may_be_of_message
from paceline.core.message import vector_fields
from paceline.core.parties.incoming_calls import IncomingCalls
from paceline.core.parties.server_view import is_undone
from paceline.core.role import Role
from paceline.core.sharding import NOWHERE, Layout
from paceline.core.vector import Memory
from paceline.live.collectives.peer_backend import PeerCarrier
from paceline.live.node.effect_loop import EffectLoop
from paceline.live.node.hosted_slice import IN_VAIN, Carrier, Declined, ServedSlice
from paceline.live.node.join_snapshot import picture
from paceline.live.node.message_checks import MessageChecks
from paceline.live.node.message_sender import MessageSender, Scatter
from paceline.live.node.published_state import (
    COMMON,
    FREIGHT,
    FREIGHT_LENGTH,
    PAST_ROLES,
    PRESENCE,
    TAKEN,
    WEIGHTS,
    ReadState,
    StatePublisher,
)
from paceline.live.node.state_reader import StateReader
from paceline.live.node.timing import AwaitedSeconds, Times
from paceline.live.protocol.channel import MessageChannel
from paceline.live.protocol.pending_reply import PendingReply, rooms_for
from paceline.live.protocol.row_packing import Packer
from paceline.live.protocol.transport import CALL, CONTROL, MEAN, REPLY, TELL, Envelope, Kind, Transport

T = TypeVar("T")

NO_VIEW = -1
"""The server view of a message that is dropped in whichever view it is delivered."""


class Node(StateReader):
    """Carries the effects of one party's roles out over a transport, and hands its roles the messages of others."""

    def __init__(
        self,
        transport: Transport,
        memory: Memory,
        *,
        timeout_s: float = 600.0,
        packer: Packer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`timeout_s` bounds each single wait. `clock` returns seconds and is monotonic."""
        self.me, self.times, self._clock = transport.me, Times(), clock
        self._memory, self._lock = memory, threading.RLock()
        self.channel = MessageChannel(transport, memory, packer)
        super().__init__(MessageSender(self.channel, memory, self._lock, timeout_s, self._hears_itself))
        self.calls, self.neighbours = self.out.calls, self.out.neighbours
        self._hosted: Sequence[ServedSlice] = (ServedSlice(),)
        self._carrier: Carrier | None = None
        self.peers: PeerCarrier | None = None  # carries means among the workers, where those reach one another
        self._loop = EffectLoop(
            self.out, self.times, self._lock, role=lambda: self.role, mean=self._mean, reply=self._reply
        )
        self.holds: dict[Role, Callable[[Role, Iterable[Tell | Reply]], Iterable[Tell | Reply]]] = {}  # what may go now
        self._unanswered = IncomingCalls[Role, int](self.me)  # of each call its number
        self._told = set[tuple[int, type]]()  # by which worker, without being asked for an answer
        self.message_checks = MessageChecks(self.me)
        self.longest_answer = 0  # elements of a vector that is asked for and may be longer than the model
        self._began = clock()
        self.published = StatePublisher(self.out.streams)
        self.published[COMMON] = lambda at: self.between_messages(lambda: picture(self._at(at).role, memory))
        self.published[FREIGHT] = lambda _slice: memory.empty(FREIGHT_LENGTH)
        self.published[PRESENCE] = self.published[TAKEN] = lambda _slice: memory.empty(0)
        # Calls `act` once the server that holds this one's copy knows all that this one knows.
        self.after_replicated: Callable[[Callable[[], None]], None] = lambda act: act()

    # ---- setting up --------------------------------------------------------------------------------------
    def place(self, role: Role | None, layout: Layout = NOWHERE, carrier: Carrier | None = None) -> None:
        """Places `role`. `layout` says which server holds what; without a carrier the servers carry `Mean`."""
        with self._lock:
            self._hosted, self._carrier, self.out.cut = (ServedSlice(layout.length, role),), carrier, Scatter(layout)
        if role is not None:
            self.published[WEIGHTS] = self._model

    def host(self, slices: Sequence[ServedSlice]) -> None:
        """Places the slices of a server, in the order of the layout. They may change within `on` only."""
        with self._lock:
            self._hosted = slices
        self.published[WEIGHTS] = self._model

    def forget(self, tag: str) -> None:
        """Drops what a server has averaged under `tag`, for which nobody will ask again."""
        with self._lock:
            for hosted in self._hosted:
                if hosted.mean_server is not None:
                    hosted.mean_server.forget(tag)

    def model_length(self) -> int:
        return self._hosted[0].length

    def shows_wrongly(self, rank: int, why: str) -> None:
        self.message_checks.strike(party.worker(rank), why, at_once=True)

    def start_clock(self, at: float = 0.0) -> None:
        """Sets the clock: `now()` counts from `at` seconds."""
        self._began = self._clock() - at

    def now(self) -> float:
        """Returns the seconds since training started, on this party's monotonic clock."""
        return self._clock() - self._began

    @property
    def role(self) -> Role:
        """Returns the role of a party that is no server."""
        role = self._hosted[0].role
        assert role is not None
        return role

    @property
    def has_loop(self) -> bool:
        """Returns True once the role of a party that is no server is there, whose loop ends by itself."""
        return self._hosted[0].role is not None

    def model(self) -> Any:
        """Returns the weights as this party knows them, as a value that nobody will change."""
        return self._model(0)[0]

    def _model(self, slice: int) -> tuple[Any, float]:
        """Returns the model as the role of one slice knows it, and its weight in a mean over the workers."""
        with self._lock:
            role = self._at(slice).role
            assert role is not None
            return role.model()

    # ---- the party's own thread: the loop box ------------------------------------------------------------
    def advance(self, result: Any = None) -> Compute | Train:
        """Resumes the role's generator and carries out effects until it wants local work done; returns that.

        result: of the local work before, None at first.
        Raises Stopped when the run is over, PeerLost or TimedOut when somebody is missing.
        """
        self.begin(result)
        return self.finish()

    def begin(self, result: Any) -> None:
        """Does the first half of `advance`: carries out effects up to the first that has to be waited for.

        `result` may hold vectors that are still arriving; what is sent of them leaves when it is there. The vectors of
        the last answer must have arrived.
        """
        self.times.arrived()
        self._loop.begin(result)

    def finish(self, since: float = 0.0, sending: float = 0.0) -> Compute | Train:
        """Does the second half of `advance`. Halves let a worker compute between sending and waiting.

        since: when this party turned to waiting, if that was after `begin` (monotonic clock).
        sending: seconds that it spent on sending before that.
        """
        return self._loop.finish(since, sending)

    def end(self, *, soon: bool) -> None:
        """Makes the role's last exchange (`Role.last_exchange`), in place of its loop. Raises as `finish` does."""
        self._loop.end(soon=soon)

    @property
    def begun_anew(self) -> int:
        """Returns how often the loop has started anew, each time because the servers went back to an earlier state."""
        return self._loop.begun_anew

    def mean(self, effect: Mean) -> Any:
        """Carries out one `Mean` outside any scheme, such as that of the initial weights."""
        return self._loop.wait(AwaitedSeconds(self._mean(effect), time.monotonic()))

    def between_messages(self, act: Callable[[], T]) -> T:
        """Calls `act` while no role of this party is at work."""
        with self._lock:
            return act()

    # ---- the end -----------------------------------------------------------------------------------------
    def leave(self) -> None:
        """Takes no further part: the role sends its last messages, and calls of others are declined."""
        with self._lock:
            role = self._hosted[0].role
            if not self.stopped and role is not None:
                self._carry_out(role, role.leave(self.now()))
                for rank, id in self._unanswered.leave():
                    self._decline(party.worker(rank), id)

    def await_taken(self, others: Iterable[Party] = ()) -> None:
        """Returns when all that this party sent others has been handled, and what those that had left sent back.

        Nobody hears first that it is gone: one server could count its part of a mean, and another close the mean
        without it. `others`: parties that are waited for, too. `paceline.core.parties.delivery_confirmation` decides.
        """
        self.neighbours.await_taken(others)

    def _decline(self, to: Party, id: int) -> None:
        """Answers that this party has no answer, so that the caller does not wait for ever."""
        self.out.post_if_there(to, Envelope(REPLY, Declined(), id))

    def stop(self, error: BaseException | None = None) -> None:
        """Wakes whoever waits with `error` (Stopped by default); every later effect raises it too."""
        stopped = self.out.stop(error)
        if self.peers is not None and not isinstance(stopped, Stopped):
            self.peers.fail(stopped)

    def lost(self, src: Party, why: str) -> None:
        """Fails the calls to `src` with PeerLost, and forgets the calls of `src`, which nobody can answer any more."""
        self.channel.lost(src)
        with self._lock:
            if src.kind == "worker":
                self._unanswered.gone(src.index)
            calls = self.calls.lost(src)
        for call in calls:
            call.pending.fail(PeerLost(f"lost {src}: {why}"))
        if self.peers is not None and src.kind == "worker":
            self.peers.lost(src, why)

    def go_back(self, server_view: int, *, rolled_back: bool) -> None:
        """Voids what was under way between this party and the servers, since servers were replaced.

        server_view: the present one; it has grown if the servers went back.
        rolled_back: they went back to an earlier state, so the loop starts anew from that once it is resumed.
        """
        with self._lock:
            calls = self.calls.void(server_view)
            role = self._hosted[0].role
            if rolled_back and role is not None:
                self._loop.start_anew(role)
                role.on_rollback()
        for call in calls:
            call.pending.fail(Undone("a server was replaced"))

    def begin_server_view(self, server_view: int) -> None:
        """Begins a server view: from now on messages of another one are dropped. Called between two messages."""
        self.calls.server_view = server_view
        self.message_checks.begin_server_view()
        self._unanswered.begin_server_view()

    @property
    def server_view(self) -> int:
        """Returns the number of the server view, which grows whenever the servers go back."""
        return self.calls.server_view

    @property
    def stopped(self) -> bool:
        """Returns True once the run is over for this party."""
        return self.calls.over is not None

    # ---- sending -----------------------------------------------------------------------------------------
    def _mean(self, effect: Mean) -> PendingReply:
        """Begins a mean by the carrier of this run: the servers, unless workers carry it themselves."""
        if self._carrier is not None:
            return self._carrier.begin(effect)
        return self.out.mean_by_servers(effect)

    def _reply(self, role: Role, effect: Reply) -> None:
        """Answers the oldest open call of a worker; nothing happens where nobody waits for the answer any more.

        Raises ProtocolError where a worker that is there has no open call.
        """
        try:
            id = self._unanswered.oldest(role, effect.to, effect.message)
        except ProtocolError as error:
            if (effect.to, type(effect.message)) not in self._told:
                raise
            # What is answered by itself came as no question, which a role cannot see.
            self.message_checks.strike(party.worker(effect.to), str(error), at_once=True)
            return
        if id is None:
            return
        answer = Envelope(REPLY, effect.message, id, server_view=self.calls.server_view)
        try:
            self.out.send(party.worker(effect.to), answer, role.me)
        except PeerLost:  # nobody waits for it any more
            return

    # ---- the transport's thread: the "upon receiving" box ------------------------------------------------
    def admits(self, src: Party, envelope: Envelope) -> bool:
        """Returns True if the message is to be handled; brings it to its bounds where it is beyond them.

        A message of another view is not checked: `deliver` drops it, and a clock that it names must not count as seen,
        or the same contribution, made again in this view, would be a false claim. A call that came before is dropped.
        """
        if envelope.kind != CONTROL and self._is_of_another_view(src, envelope):
            envelope.server_view = NO_VIEW  # also if that view begins before `deliver`
            return True
        if self._was_had(src, envelope):
            return False  # or the clock that it names again would count as a false claim
        message = envelope.message
        if self.message_checks.admit(src, envelope, self._held(src, envelope)):
            return True
        self._goes_on_without(src, envelope, message)
        return False

    def fits(self, src: Party, envelope: Envelope) -> bool:
        """Returns False for a message that came before there was a role, and has a vector of a wrong length."""
        if self.message_checks.fits(src, envelope.message, self._held(src, envelope)):
            return True
        self._goes_on_without(src, envelope, envelope.message)
        return False

    def _goes_on_without(self, src: Party, envelope: Envelope, message: Any) -> None:
        """Lets a worker's role go on without a message that was dropped: its sender stays, and others may wait for it.

        A call is declined, or it would stay open for ever. A mean among the workers cannot go on without a piece.
        """
        if envelope.kind == MEAN and src.kind == "worker" and self.peers is not None:
            self.peers.dropped(src, message)
        if self.me.kind != "worker" or src.kind != "worker" or envelope.kind not in (CALL, TELL):
            return
        if envelope.kind == CALL:
            self._decline(src, envelope.id)
        with self._lock:
            role = self._hosted[0].role
            if role is not None:
                self._carry_out(role, role.on_refused(self.now(), src.index, message))

    def _held(self, src: Party, envelope: Envelope) -> int:
        """Returns the elements of what the message is for; 0 where that is not known.

        What a server answers is not looked at: it is a slice of the model, joined with others.
        """
        if envelope.kind == REPLY and src.kind != "worker":
            return 0
        at = envelope.slice
        return self._hosted[at].length if at < len(self._hosted) else 0

    def unpack(self, src: Party, envelope: Envelope) -> bool:
        """Makes a packed message what it was; returns whether it was packed. Raises ProtocolError.

        Whoever delivers checks it once more: what is packed is a message of its own.
        """
        return self.channel.unpack(src, envelope, self._longest())

    def deliver(self, src: Party, envelope: Envelope) -> None:
        """Hands a message to the role or the call it is for.

        Raises ProtocolError for an answer to no question, and for what cannot be decoded.
        """
        if envelope.kind == MEAN:
            self._carrier_of_peers(src).deliver(src, envelope)
            return
        for name in vector_fields(type(envelope.message)):
            if type(getattr(envelope.message, name)) is Encoded:
                self.channel.decode(src, envelope, functools.partial(self.room_for, src, envelope.kind, envelope.id))
                break
        self._dispatch(src, envelope)

    def _hears_itself(self, envelope: Envelope) -> None:
        """Handles a message of this party's role to itself, at once: it passes no transport, and no codec."""
        self._dispatch(self.me, envelope)

    def _dispatch(self, src: Party, envelope: Envelope) -> None:
        """Hands a decoded message to the role or the call it is for. Raises ProtocolError as `deliver` does."""
        if self._is_of_another_view(src, envelope):
            return  # sent before the servers went back
        if envelope.kind == REPLY:
            self._answered(src, envelope)
            return
        if isinstance(envelope.message, ReadState):
            self._show(src, envelope)
            return
        with self._lock:
            if self._is_of_another_view(src, envelope):
                return  # the servers went back while it waited for the lock
            hosted = self._at(envelope.slice)
            role = hosted.mean_server if hosted.mean_server and isinstance(envelope.message, Part) else hosted.role
            if role is None:
                raise ProtocolError(f"{self.me} got {type(envelope.message).__name__} before it had a role")
            if envelope.kind == CALL and not self._unanswered.take(
                role, src.index, envelope.slice, envelope.id, envelope.id
            ):
                self._decline(src, envelope.id)
                return
            if envelope.kind == TELL and self.me.kind == "worker":
                self._told.add((src.index, type(envelope.message)))
            try:
                self._carry_out(role, role.on(self.now(), src.index, envelope.message))
            except Exception as error:
                if not isinstance(error, Unexpected) and (src.kind != "worker" or not may_be_of_message(error)):
                    raise
                if src == self.me:
                    raise
                self._fails_a_role(role, src, envelope, error)
                return
            for after in list(hosted.after.values()) if hosted.after else ():
                after()

    def _fails_a_role(self, role: Role, src: Party, envelope: Envelope, error: Exception) -> None:
        """Gives the sender of a message a strike for the exception that `role` raised over it; the receiver goes on."""
        if not isinstance(error, ProtocolError):
            traceback.print_exception(error)  # the sender may be honest, and the role at fault
        what = str(error) if isinstance(error, Unexpected) else f"{type(envelope.message).__name__}: {error!r}"
        self.message_checks.strike(src, what, at_once=True)
        if envelope.kind == TELL or self._unanswered.withdraw(role, src.index, envelope.id):
            self._goes_on_without(src, envelope, envelope.message)

    def _show(self, src: Party, question: Envelope) -> None:
        """Answers a question for published state; one whether all is taken goes behind all that the loop sends."""
        show = functools.partial(self.published.show, src, question)
        if question.message.what == TAKEN:
            self._loop.when_sent(lambda: self.after_replicated(show))
        elif question.message.what == PRESENCE:
            self._loop.when_sent(show)
        else:
            show()

    def _was_had(self, src: Party, envelope: Envelope) -> bool:
        """Returns True for a call of a worker that was sent again, and had come already."""
        is_call = envelope.kind == CALL and src.kind == "worker"
        return is_call and self._unanswered.had(src.index, envelope.slice, envelope.id)

    def _is_of_another_view(self, src: Party, envelope: Envelope) -> bool:
        """Returns True for a message between a server and others that belongs to what was undone, or is to be."""
        undone = is_undone(envelope.server_view, self.calls.server_view, src, self.me)
        return undone and not isinstance(envelope.message, PAST_ROLES)

    def _carrier_of_peers(self, src: Party) -> PeerCarrier:
        """Returns what carries means here. Raises ProtocolError for a sender that takes part in none."""
        if self.peers is None or src.kind != "worker":
            raise ProtocolError(f"{src} sends {self.me} a part of a mean that it takes no part in")
        return self.peers

    def judged(self, accuracy: float) -> None:
        """Tells the coordinator's role the accuracy of an evaluation, from 0 to 1."""
        with self._lock:
            self._carry_out(self.role, self.role.on_evaluation(self.now(), accuracy))

    def gone(self, rank: int) -> None:
        """Tells the roles that worker `rank` takes no further part."""
        with self._lock:
            self.out.departures += 1
            self._unanswered.gone(rank)
            for role in self._roles():
                self._carry_out(role, role.on_worker_left(self.now(), rank))

    def came(self, rank: int) -> None:
        """Tells the roles that worker `rank` takes part from now on, as a newcomer."""
        self.message_checks.came(rank)
        with self._lock:
            self._unanswered.came(rank)
            self.neighbours.came(rank)
            for role in self._roles():
                self._carry_out(role, role.on_worker_joined(self.now(), rank))

    def _roles(self) -> list[Role]:
        """Returns all roles of all slices."""
        return [role for hosted in self._hosted for role in hosted.roles()]

    def _at(self, slice: int) -> ServedSlice:
        """Returns a slice. Raises ProtocolError for a number that this party does not have."""
        if slice >= len(self._hosted):
            raise ProtocolError(f"{self.me} is asked for its slice {slice} and has {len(self._hosted)}")
        return self._hosted[slice]

    def _carry_out(self, role: Role, effects: Iterable[Tell | Reply]) -> None:
        """Carries out what a role has asked for, or leaves it to who holds it back, such as for a copy."""
        if hold := self.holds.get(role):
            effects = hold(role, effects)
        self.release(role, effects)

    def release(self, role: Role, effects: Iterable[Tell | Reply]) -> None:
        """Carries out effects that were held; called between two messages."""
        for effect in effects:
            try:
                match effect:
                    case Reply():
                        self._reply(role, effect)
                    case Tell():
                        self.out.tell(effect.to, effect.message)
                    case _:
                        assert_never(effect)
            except PeerLost:  # the coordinator deals with the loss; the others get theirs
                continue

    def _answered(self, src: Party, envelope: Envelope) -> None:
        """Gives a reply to who waits for it; drops one that came too late to matter.

        Raises ProtocolError for a reply to a call that was never made.
        """
        with self._lock:
            call = self.calls.answered(envelope.id, src)
        if call is None:
            return  # it came too late to matter
        pending, part = call
        if isinstance(envelope.message, IN_VAIN):
            pending.fail(envelope.message.error(src))
            return
        pending.put(part, envelope.message, envelope.seconds_receiving)

    def _longest(self) -> int:
        """Returns the elements of the longest vector that may be sent here; 0 means any length."""
        hosted = self._hosted
        return hosted[0].length if len(hosted) == 1 else max([one.length for one in hosted])

    def room_for(
        self, src: Party, kind: Kind, id: int, lengths: Sequence[int], shared: Sequence[Any] = ()
    ) -> list[Any]:
        """Returns vectors to receive into, one for each length.

        It is asked before the bytes arrive, so it raises ProtocolError for vectors longer than any slice held here, and
        than any answer that this party may get.
        """
        if kind == MEAN:
            return self._carrier_of_peers(src).room_for(src, id, lengths, shared)
        longest = self._longest()
        if longest and kind == REPLY:
            longest = max(longest, self.longest_answer)
        if longest and max(lengths) > longest:
            raise ProtocolError(f"{src} sends a vector of {max(lengths)} elements, {self.me} expects {longest} at most")
        call = self.calls.find(id) if kind == REPLY else None
        if call is not None:
            return call.pending.room(call.part, self.out.cut.slices, lengths, shared)
        return rooms_for(lengths, shared, self._memory)

    def room_for_look(
        self, src: Party, kind: Kind, id: int, lengths: Sequence[int], shared: Sequence[Any], *, longest: int
    ) -> list[Any]:
        """Does `room_for` for the coordinator, which is sent no vectors but those that it has asked to read.

        longest: elements of a vector, at most.
        """
        asked = self.calls.find(id) is not None or self.calls.is_void(id)  # the sender need not know that it is void
        if kind != REPLY or not asked or max(lengths) > longest:
            raise ProtocolError(f"{src} sends vectors to the {self.me}")
        return self.room_for(src, kind, id, lengths, shared)
