"""One party of a run: its roles, the calls it has open and those it has not answered yet.

Two threads meet here. The transport's thread brings messages (`deliver`); the party's own thread moves the loop
box on (`advance`). A lock keeps the roles to one of them at a time, so `on` is never interleaved with `run`.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from typing import Any, TypeVar, assert_never

from paceline.codec.stage import Stage
from paceline.core.effects import SERVERS, Call, Compute, Effect, Mean, Reply, Start, Tell, To, Train, Wait
from paceline.core.errors import PeerLost, ProtocolError, Stopped, Undone
from paceline.core.mean import Part
from paceline.core.message import nature_of, vector_fields
from paceline.core.role import Role
from paceline.core.sharding import NOWHERE, Layout
from paceline.core.vector import Memory
from paceline.live import party
from paceline.live.calls import OpenCalls
from paceline.live.cutting import Cut
from paceline.live.exhibits import COMMON, FREIGHT, FREIGHT_LENGTH, PAST_ROLES, PRESENCE, WEIGHTS, Exhibits, Peek
from paceline.live.hosted import IN_VAIN, Carrier, Declined, Hosted
from paceline.live.looks import Looking
from paceline.live.neighbours import Neighbours
from paceline.live.packing import Packed, Packer, PackingPost
from paceline.live.party import Party
from paceline.live.peers import PeerCarrier
from paceline.live.pending import Pending, rooms_for
from paceline.live.picture import picture
from paceline.live.streams import Streams
from paceline.live.times import Awaited, Times
from paceline.live.transport import Envelope, Kind, Transport, progress_of

T = TypeVar("T")


class Node(Looking):
    """Carries effects out over a transport."""

    def __init__(
        self,
        transport: Transport,
        memory: Memory,
        *,
        timeout_s: float = 600.0,
        packer: Packer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`timeout_s` bounds every single wait. `clock`: seconds, never backwards."""
        self.me, self.times, self._clock = transport.me, Times(), clock
        self._packing = PackingPost(transport, packer) if packer else None
        self._memory, self._timeout_s = memory, timeout_s
        self._post, self._progress = self._packing or transport, functools.partial(progress_of, transport)
        self._streams = Streams(self._post)
        self._hosted: Sequence[Hosted] = (Hosted(),)
        self._cut = Cut(NOWHERE)
        self._carrier: Carrier | None = None
        self.peers: PeerCarrier | None = None  # carries means among the workers, where those reach one another
        self._generator: Generator[Effect, Any, None] | None = None
        self._wanted: Compute | Train | Awaited | None = None  # where the loop box stands
        self._lock = threading.RLock()
        self.view = 0  # grows whenever the servers go back
        self._resumed_in = 0  # the view that the loop box knows of
        self.calls = OpenCalls()
        self.holds: dict[Role, Callable[[Role, Iterable[Tell | Reply]], Iterable[Tell | Reply]]] = {}  # what may go now
        self._unanswered: dict[tuple[Role, int], deque[int]] = defaultdict(deque)  # calls at us: oldest first
        self.neighbours = Neighbours(self._call, timeout_s)
        self._away: set[int] = set()  # workers that left or were lost: whatever they still wait for is not answered
        self._left = self._anew = False  # has this worker left; is its loop box to start anew
        self._stopped: BaseException | None = None
        self._began = clock()
        self.stage = Stage(memory, nature_of, up=None, down=None)  # where vectors become bytes
        self.exhibits = Exhibits(self._streams)
        self.exhibits[COMMON] = lambda at: self.between_messages(lambda: picture(self._at(at).role, memory))
        self.exhibits[FREIGHT] = lambda _slice: memory.empty(FREIGHT_LENGTH)
        self.exhibits[PRESENCE] = lambda _slice: memory.empty(0)

    # ---- setting up --------------------------------------------------------------------------------------
    def place(self, role: Role | None, layout: Layout = NOWHERE, carrier: Carrier | None = None) -> None:
        """Take up `role`. `layout` says which server holds what; without a carrier the servers carry `Mean`."""
        with self._lock:
            self._hosted, self._carrier, self._cut = (Hosted(layout.length, role),), carrier, Cut(layout)
        if role is not None:
            self.exhibits[WEIGHTS] = self._model

    def host(self, slices: Sequence[Hosted]) -> None:
        """Of a server: take up its slices, in the order of the layout. They may change under `on` only."""
        with self._lock:
            self._hosted = slices
        self.exhibits[WEIGHTS] = self._model

    def forget(self, tag: str) -> None:
        """Of a server: nobody will ask again for what it has averaged under `tag`."""
        with self._lock:
            for hosted in self._hosted:
                if hosted.mean_server is not None:
                    hosted.mean_server.forget(tag)

    def start_clock(self, at: float = 0.0) -> None:
        """From now on `now()` counts from `at` seconds."""
        self._began = self._clock() - at

    def now(self) -> float:
        """Seconds since training started, on this party's monotonic clock."""
        return self._clock() - self._began

    @property
    def role(self) -> Role:
        """Of a party that is no server."""
        role = self._hosted[0].role
        assert role is not None
        return role

    def model(self) -> Any:
        """The weights as this party knows them: a value that nobody will change."""
        return self._model(0)[0]

    def _model(self, slice: int) -> tuple[Any, float]:
        with self._lock:
            role = self._at(slice).role
            assert role is not None
            return role.model()

    # ---- the party's own thread: the loop box ------------------------------------------------------------
    def advance(self, result: Any = None) -> Compute | Train:
        """Resume the loop box and carry out effects until it wants local work done; returns that.

        Raises Stopped when the run is over, PeerLost or TimedOut when somebody is missing.
        """
        self.begin(result)
        return self.finish()

    def begin(self, result: Any) -> None:
        """The first half of `advance`: carry out effects up to the first that has to be waited for.

        `result` may hold vectors that are still arriving; what is sent of them leaves when it is there. What was taken
        from the last answer has to be there.
        """
        self.times.arrived()
        self._wanted = self._proceed(result, None)

    def finish(self, since: float = 0.0, sending: float = 0.0) -> Compute | Train:
        """The second half.

        since: when this party turned to waiting, if that was after `begin` (monotonic clock); sending: how many
        seconds before that it has spent on sending.
        """
        while isinstance(self._wanted, Awaited):
            awaited, self._wanted = self._wanted, None
            awaited.since = max(awaited.since, since)
            try:
                value, lost = self._finish(awaited, sending), None
            except PeerLost as error:  # the scheme may know what to do without
                value, lost = None, error
            sending = 0.0
            self._wanted = self._proceed(value, lost)
        assert self._wanted is not None
        return self._wanted

    def _proceed(self, value: Any, lost: PeerLost | None) -> Compute | Train | Awaited:
        while True:
            effect = self._resume(value, lost)
            if isinstance(effect, Compute | Train):
                return effect
            try:
                value, lost = self._carry(effect), None
            except PeerLost as error:
                value, lost = None, error
            if isinstance(value, Awaited):
                return value

    def _carry(self, effect: Call | Mean | Tell | Reply | Start | Wait) -> Any:
        match effect:
            case Call() | Mean():
                began = time.monotonic()
                return Awaited(self._begin(effect), began)
            case Tell():
                return self._tell(effect.to, effect.message, self._resumed_in)
            case Reply():
                return self._reply(self.role, effect)
            case Start(effect=inner):
                return self._begin(inner)
            case Wait(ticket=ticket):
                assert isinstance(ticket, Pending)
                return Awaited(ticket, time.monotonic())
            case _:
                assert_never(effect)

    def _begin(self, effect: Call | Mean) -> Pending:
        if isinstance(effect, Mean):
            return self._mean(effect)
        return self._call(effect.to, effect.message, streams=effect.streams, view=self._resumed_in)

    def mean(self, effect: Mean) -> Any:
        """Carry out one `Mean` outside any scheme, such as that of the initial weights."""
        return self._finish(Awaited(self._mean(effect), time.monotonic()))

    def between_messages(self, act: Callable[[], T]) -> T:
        """`act` while no role of this party is at work."""
        with self._lock:
            return act()

    # ---- the end -----------------------------------------------------------------------------------------
    def leave(self) -> None:
        """Take no further part: the role says its last words, and Calls of others are declined.

        Returns when everything that this party told others has reached them, and come back from those who had left.
        """
        with self._lock:
            role = self._hosted[0].role
            if self._stopped is None and role is not None:
                self._left = True
                self._carry_out(role, role.leave(self.now()))
                for (_, rank), ids in self._unanswered.items():
                    for id in ids:
                        self._decline(party.worker(rank), id)
                self._unanswered.clear()
        self.neighbours.settle()

    def _decline(self, to: Party, id: int) -> None:
        with contextlib.suppress(PeerLost):
            self._streams.send(to, Envelope(Kind.REPLY, Declined(), id))

    def stop(self, error: BaseException | None = None) -> None:
        """Wake whoever waits with `error` (Stopped by default); every later effect raises it too."""
        with self._lock:
            self._stopped = self._stopped or error or Stopped()
            calls = self.calls.close_all()
        for pending in calls:
            pending.fail(self._stopped)
        if self.peers is not None and not isinstance(self._stopped, Stopped):
            self.peers.fail(self._stopped)

    def lost(self, src: Party, why: str) -> None:
        """Whoever waits for an answer of `src` gets PeerLost; what `src` waits for is answered to nobody."""
        if self._packing:
            self._packing.forget(src)
        self.stage.lost(src)
        with self._lock:
            if src.kind == "worker":
                self._away.add(src.index)
            for role, rank in [key for key in self._unanswered if party.worker(key[1]) == src]:
                del self._unanswered[role, rank]
            calls = self.calls.lost(src)
        for pending in calls:
            pending.fail(PeerLost(f"lost {src}: {why}"))
        if self.peers is not None and src.kind == "worker":
            self.peers.lost(src, why)

    def go_back(self, view: int, *, undone: bool) -> None:
        """Servers were replaced: what was under way between this party and servers is void.

        view: the one that there is now; another one than before if the servers went back.
        undone: they went back to an earlier state, so that the loop box starts anew on that once it is resumed.
        """
        with self._lock:
            self.view = view
            calls = self.calls.void()
            role = self._hosted[0].role
            self._anew = self._anew or undone
            if role is not None and undone:
                role.undone()
        for pending in calls:
            pending.fail(Undone("a server was replaced"))

    def ask_again(self, servers: Collection[Party]) -> None:
        """These are in the place of others, with all that those had answered: ask what is still to be answered."""
        with self._lock:
            asked = self.calls.asked_again(servers)
        for to, envelope in asked:
            with contextlib.suppress(PeerLost):
                self._streams.send(to, envelope)  # the very same; whoever encoded it has counted on its arrival

    def begin_view(self, view: int) -> None:
        """Of a server, between two messages: from now on what belongs to another view is not heard."""
        self.view = view
        self._unanswered.clear()

    @property
    def stopped(self) -> bool:
        return self._stopped is not None

    def _resume(self, value: Any, lost: PeerLost | None) -> Effect:
        with self._lock:
            if self._stopped is not None:
                raise self._stopped
            self._resumed_in = self.view
            if self._anew:
                self._anew, self._generator, lost = False, None, None
            if self._generator is None:
                self._generator, value = self.role.run(), None
            try:
                return self._generator.throw(lost) if lost else self._generator.send(value)
            except StopIteration:
                raise Stopped from None

    def _finish(self, awaited: Awaited, sending: float = 0.0) -> Any:
        try:
            return awaited.pending.wait(self._timeout_s)
        finally:  # a wait that the end of the run cuts short was a wait all the same
            self.times.waited(awaited, time.monotonic(), sending)

    # ---- sending -----------------------------------------------------------------------------------------
    def _send(self, to: Party, envelope: Envelope, part: int) -> None:
        """`part` is the number of the slice that the message is for or comes from."""
        encode = vector_fields(type(envelope.message)) and (lambda: self._encode(to, envelope, part))
        try:
            self._streams.send(to, envelope, encode or None)
        except PeerLost:
            if not self.calls.waits_for(to):
                raise

    def _encode(self, to: Party, envelope: Envelope, part: int) -> None:
        with self.stage.order(to):
            envelope.message = self.stage.outgoing(to, part, envelope.message)
            self._post.send(to, envelope)

    def _call(self, to: To, whole: Any, *, streams: bool = False, view: int | None = None) -> Pending:
        what = f"the answer of {to} to {type(whole).__name__}"
        return self._ask(self._cut.parts(to, whole), what, self._cut.edges if streams else (), view)

    def _ask(
        self, parts: list[tuple[int, Party, int, Any]], what: str, edges: Sequence[int] = (), view: int | None = None
    ) -> Pending:
        """`view`: in which it is asked, the present one by default; all of it is void when that ends meanwhile."""
        progress = functools.partial(self._progress, [target for _, target, _, _ in parts])
        pending = Pending(what, len(parts), self._memory, edges=edges, timeout_s=self._timeout_s, progress=progress)
        view = self.view if view is None else view
        for part, target, at, piece in parts:
            try:
                self._send(target, self._asking(target, at, piece, pending, part, view), part)
            except PeerLost as error:  # for whoever waits for the answer, now or later
                pending.fail(error)
        return pending

    def _asking(self, target: Party, at: int, piece: Any, pending: Pending, part: int, view: int) -> Envelope:
        """The question, whose answer is part `part` of `pending`. Raises Undone if `view` is over."""
        with self._lock:
            if self._stopped is not None and not isinstance(piece, Peek):
                raise self._stopped
            if target.kind == "server" and view != self.view and not isinstance(piece, Peek):
                raise Undone("a server was replaced")  # those servers would not hear it
            envelope = Envelope(Kind.CALL, piece, self.calls.open(pending, part, target), at, view)
        pending.sent.append(envelope)
        return envelope

    def _mean(self, effect: Mean) -> Pending:
        if self._carrier is not None:
            return self._carrier.begin(effect)
        return self.by_servers(effect)

    def by_servers(self, effect: Mean) -> Pending:
        """A mean that the servers carry, whoever carries others."""
        return self._call(SERVERS, Part.of(effect))

    def _tell(self, to: To, whole: Any, view: int | None = None) -> None:
        view = self.view if view is None else view
        self.neighbours.told += 1
        for part, target, at, piece in self._cut.parts(to, whole):
            self._send(target, Envelope(Kind.TELL, piece, slice=at, view=view), part)

    def _reply(self, role: Role, effect: Reply) -> None:
        calls = self._unanswered.get((role, effect.to))
        if calls:
            answer = Envelope(Kind.REPLY, effect.message, calls.popleft(), view=self.view)
            self._send(party.worker(effect.to), answer, role.me)
        elif effect.to not in self._away:
            raise ProtocolError(f"{self.me} answers worker {effect.to}, which has asked nothing: {effect.message!r}")

    # ---- the transport's thread: the "upon receiving" box ------------------------------------------------
    def deliver(self, src: Party, envelope: Envelope) -> None:
        """Raises ProtocolError for an answer to no question, and for what cannot be unpacked or decoded."""
        if envelope.kind == Kind.MEAN:
            self._carrier_of_peers(src).deliver(src, envelope)
            return
        if self._packing and isinstance(envelope.message, Packed):
            envelope.message = self._packing.unpacked(envelope.message, src, self._longest())
        if vector_fields(type(envelope.message)):
            room = functools.partial(self.room_for, src, envelope.kind, envelope.id)
            envelope.message = self.stage.incoming(src, envelope.message, room, from_server=src.kind == "server")
        between = "server" in (src.kind, self.me.kind) and not isinstance(envelope.message, PAST_ROLES)
        if between and envelope.view != self.view:
            return  # it is of before the servers went back
        if envelope.kind == Kind.REPLY:
            self._answered(src, envelope)
            return
        if isinstance(envelope.message, Peek):
            self.exhibits.show(src, envelope)
            return
        with self._lock:
            if between and envelope.view != self.view:
                return  # the servers went back while it waited for its turn
            if self._left and envelope.kind == Kind.CALL:
                self._decline(src, envelope.id)
                return
            hosted, role = self._role_for(envelope)
            if envelope.kind == Kind.CALL:
                unanswered = self._unanswered[role, src.index]
                if envelope.id in unanswered:
                    return  # asked again, and will be answered
                unanswered.append(envelope.id)
            self._carry_out(role, role.on(self.now(), src.index, envelope.message))
            for after in list(hosted.after.values()) if hosted.after else ():
                after()

    def _carrier_of_peers(self, src: Party) -> PeerCarrier:
        if self.peers is None or src.kind != "worker":
            raise ProtocolError(f"{src} sends {self.me} a part of a mean that it takes no part in")
        return self.peers

    def judged(self, accuracy: float) -> None:
        """The coordinator has heard how good the model is."""
        with self._lock:
            self._carry_out(self.role, self.role.judged(self.now(), accuracy))

    def gone(self, rank: int) -> None:
        """Worker `rank` takes no further part."""
        with self._lock:
            self._away.add(rank)
            for role in self._roles():
                self._unanswered.pop((role, rank), None)
                self._carry_out(role, role.gone(self.now(), rank))

    def came(self, rank: int) -> None:
        """Worker `rank` takes part from now on, as a newcomer."""
        with self._lock:
            self._away.discard(rank)
            for role in self._roles():
                self._carry_out(role, role.came(self.now(), rank))

    def _roles(self) -> list[Role]:
        return [role for hosted in self._hosted for role in hosted.roles()]

    def _at(self, slice: int) -> Hosted:
        if slice >= len(self._hosted):
            raise ProtocolError(f"{self.me} is asked for its slice {slice} and has {len(self._hosted)}")
        return self._hosted[slice]

    def _role_for(self, envelope: Envelope) -> tuple[Hosted, Role]:
        hosted = self._at(envelope.slice)
        role = hosted.mean_server if isinstance(envelope.message, Part) and hosted.mean_server else hosted.role
        if role is None:
            raise ProtocolError(f"{self.me} got {type(envelope.message).__name__} before it had a role")
        return hosted, role

    def _carry_out(self, role: Role, effects: Iterable[Tell | Reply]) -> None:
        hold = self.holds.get(role)
        self.release(role, hold(role, effects) if hold else effects)

    def release(self, role: Role, effects: Iterable[Tell | Reply]) -> None:
        """Carry out what was held; between two messages."""
        for effect in effects:
            try:
                match effect:
                    case Reply():
                        self._reply(role, effect)
                    case Tell():
                        self._tell(effect.to, effect.message)
                    case _:
                        assert_never(effect)
            except PeerLost:  # one that is lost is the coordinator's affair; the others get theirs
                continue

    def _answered(self, src: Party, envelope: Envelope) -> None:
        with self._lock:
            call = self.calls.close(envelope.id)
            if call is None:
                if self._stopped is not None or self.calls.is_void(envelope.id):
                    return  # an answer that came too late to matter
                raise ProtocolError(f"{src} answered a question that {self.me} did not ask")
        pending, part, _ = call
        if isinstance(envelope.message, IN_VAIN):
            pending.fail(envelope.message.error(src))
            return
        pending.put(part, envelope.message, envelope.seconds_receiving)

    def _longest(self) -> int:
        """Elements of the longest vector that may come here; 0 for any."""
        return max(hosted.length for hosted in self._hosted)

    def room_for(
        self, src: Party, kind: Kind, id: int, lengths: Sequence[int], shared: Sequence[Any] = ()
    ) -> list[Any]:
        """Vectors to receive into. Raises ProtocolError for more than what is held here can explain."""
        if kind == Kind.MEAN:
            return self._carrier_of_peers(src).room_for(src, id, lengths, shared)
        longest = self._longest()
        if longest and max(lengths) > longest:
            raise ProtocolError(f"{src} sends a vector of {max(lengths)} elements, {self.me} expects {longest} at most")
        call = self.calls.find(id) if kind == Kind.REPLY else None
        if call is not None:
            return call.pending.room(call.part, self._cut.slices, lengths, shared)
        return rooms_for(lengths, shared, self._memory)
