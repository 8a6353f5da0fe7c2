"""`Mean` carried by the workers themselves, over the connections between them.

A vector is averaged in strips. Each goes through the schedule (`paceline.core.collective`) on its own, so that one is
added up while the next is on its way, and only so many are under way that memory stays bounded. A mean is known by its
name, so several may be under way at once, begun in different orders, each among any of the workers.

    a member       input                        then
    takes part     its Piece                    passed to the mean; kept if this worker has not begun that yet
    takes part     Away: it has left            for each open mean it is sent Take, and takes part with weight zero
    has left       a mean with it begins        the same
    takes part     its connection is lost       all means with it fail with PeerLost

So uneven work does not hang: the mean is that of the workers that are there. Three threads meet here, as the sections
below name them; the means themselves are touched by the carrier's own thread alone, which takes actions from a queue.
"""

from __future__ import annotations

import functools
import hashlib
import math
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from paceline.codec.encoded import Encoded
from paceline.codec.pipeline.collective import AS_IT_IS, MeanCoder
from paceline.core.collective import Groups, OutgoingPiece
from paceline.core.collective.mean_server import Averaged
from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.core.effects import Mean
from paceline.core.errors import Diverged, PacelineError, PeerLost, ProtocolError
from paceline.core.message import message
from paceline.core.paramserver.peer_check import OwnResults
from paceline.core.validation import bounds
from paceline.core.vector import Memory
from paceline.live.collectives.operations import FalsePieceError, Meeting, Take, Tools, VectorAdder, meeting_of
from paceline.live.protocol.pending_reply import PendingReply
from paceline.live.protocol.transport import Envelope, Kind, Transport

STRIP_BYTES = 8 << 20
"""Bytes of a strip, at most."""
STRIP_BITS, STEP_BITS = 16, 14
CLOSED_MAX = 256  # means that are over and still known by name
EARLY_MAX = 1024
"""Pieces of one worker that are kept for strips which have not begun here. One that is ahead sends far fewer: of each
strip it goes on only with what this worker has sent."""


@message("peers.Piece", plane="collective")
class Piece:
    """Carries part of a strip: the mean of what was added so far, its weight, and the length of the whole vector."""

    v: bounds.Strip
    weight: bounds.MeanWeight
    length: bounds.Elements


@message("peers.Away", plane="collective")
class Away:
    """Says that this worker has left: it begins no mean any more."""


def key_of(name: str, among: tuple[int, ...]) -> int:
    """Returns the key of a mean: the high bits of an envelope's id, whose low bits are strip and step."""
    digest = hashlib.blake2b(f"{name} {among}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> (STRIP_BITS + STEP_BITS) << (STRIP_BITS + STEP_BITS)


def id_of(key: int, strip: int, step: int) -> int:
    """Returns the id of an envelope: which mean, which strip of it, which step of its schedule."""
    return key | strip << STEP_BITS | step


def from_id(id: int) -> tuple[int, int, int]:
    """Does the inverse of `id_of`."""
    low = id & ((1 << (STRIP_BITS + STEP_BITS)) - 1)
    return id - low, low >> STEP_BITS, low & ((1 << STEP_BITS) - 1)


class PeerCarrier:
    """Carries one worker's part of all means over the connections of `transport`, on a thread of its own."""

    def __init__(
        self,
        transport: Transport,
        memory: Memory,
        adder: VectorAdder,
        *,
        coder: MeanCoder | None = None,
        strip_bytes: int = STRIP_BYTES,
        check: OwnResults | None = None,
        refuse: Callable[[int, str], None] = lambda rank, why: None,
        most_weight: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """`coder`: of the run's codec, or None. `strip_bytes`: of a strip at most. `check`: see `Tools`.

        refuse: counts a false claim of a worker: its rank, and what is wrong. most_weight: returns that of all
        together.
        """
        self._refuse, self._most_weight = refuse, most_weight
        self._transport, self._memory, self._adder, self._coder = transport, memory, adder, coder
        self._tools = Tools(memory, adder, coder, strip_bytes, check)
        self._me = transport.me.index
        self._strip_bytes = strip_bytes
        self._open: dict[int, Meeting] = {}
        self._early: dict[int, list[tuple[int, Envelope]]] = {}  # of strips that this worker has not begun
        self._kept = Counter[int]()  # by sender: how many of them
        self._broken: BaseException | None = None
        self._closed: deque[int] = deque(maxlen=CLOSED_MAX)
        self._away: set[int] = set()  # have left
        self._lost: dict[int, PacelineError] = {}  # why there is no mean with that worker any more
        self._has_left = False
        self._todo: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"means of {transport.me}", daemon=True)
        self._thread.start()

    # ---- the party's own thread --------------------------------------------------------------------------
    def begin(self, effect: Mean, schedule: str, hosts: Groups = ()) -> PendingReply:
        """Begins a mean; returns its pending result. A worker alone has it at once, and on the device of its vector.

        schedule, hosts: members by host, as positions in `among`; both the same on every member.
        """
        pending = PendingReply(f"Mean {effect.tag} over {len(effect.among)} workers", 1, self._memory)
        if len(effect.among) == 1:
            pending.put(0, Averaged(v=self._adder.dense(effect.v), weight=effect.weight), 0.0)
            return pending
        what = Take(
            name=str(effect.tag),
            among=effect.among,
            length=len(effect.v),
            schedule=schedule,
            hosts=hosts,
            coding=self._coder.coding(effect) if self._coder else AS_IT_IS,
        )
        self._todo.put(lambda: self._begin(what, pending, replace(effect, v=self._adder.readable(effect.v))))
        return pending

    def leave(self, workers: Iterable[int]) -> None:
        """Tells `workers` that this worker begins no mean any more."""

        def leave() -> None:
            self._has_left = True
            for rank in workers:
                self._send(rank, 0, Away())

        workers = list(workers)
        self._todo.put(leave)

    def close(self) -> None:
        """Ends the thread, after what is under way."""
        self._todo.put(None)
        self._thread.join()

    # ---- the transport's thread --------------------------------------------------------------------------
    def deliver(self, src: Party, envelope: Envelope) -> None:
        """Takes a message of another carrier. Raises ProtocolError for any other message."""
        match envelope.message:
            case Piece():
                self._todo.put(lambda: self._arrived(src.index, envelope))
            case Away():
                self._todo.put(lambda: self._left(src.index))
            case Take() as what:
                self._todo.put(lambda: self._stand_by(src.index, what))
            case other:
                raise ProtocolError(f"{src} sent {type(other).__name__} where a mean is carried")

    def room_for(self, src: Party, id: int, lengths: Sequence[int], shared: Sequence[Any] = ()) -> list[Any]:
        """Returns where to receive a piece: in its place, if nothing has to be added. Raises ProtocolError."""
        if shared:  # a piece is one vector, and it is there, or needs no room but for its bytes
            longest = self._coder.length if self._coder else 0
            if isinstance(shared[0], Encoded) and lengths[0] > longest:
                raise ProtocolError(f"{src} sends {lengths[0]} encoded numbers, and the model has {longest}")
            return list(shared)
        key, strip, step = from_id(id)
        meeting = self._open.get(key)
        part = meeting.parts.get(strip) if meeting else None
        if meeting and part and src.index in meeting.what.among:
            room = part.room(step, meeting.what.among.index(src.index))
            if room is not None and len(room) == lengths[0]:
                return [room]
        if 4 * lengths[0] > self._strip_bytes:
            raise ProtocolError(f"{src} sends {lengths[0]} numbers at once, more than a strip has")
        return [self._memory.empty(length) for length in lengths]

    def lost(self, src: Party, why: str) -> None:
        """Fails the means that `src` is a member of, with PeerLost."""
        self._todo.put(lambda: self._lose(src.index, PeerLost(f"lost {src}: {why}")))

    def dropped(self, src: Party, message: Any) -> None:
        """Fails the means that `src` is a member of, if a piece of it was dropped: nobody else has that."""
        if not isinstance(message, Piece):
            return  # others ask for the same (Take)
        why = f"{src} sent a piece of a mean that cannot be; its strike in the log says why"
        self._todo.put(lambda: self._lose(src.index, ProtocolError(why)))

    def fail(self, error: BaseException) -> None:
        """Fails all means with `error`, since this worker cannot go on."""
        self._todo.put(lambda: self._break(error))

    # ---- the carrier's own thread ------------------------------------------------------------------------
    def _run(self) -> None:
        """Is the thread's main function: carries out what is asked, in order. An error breaks all means."""
        while (action := self._todo.get()) is not None:
            try:
                action()
            except Exception as error:
                self._break(error)

    def _break(self, error: BaseException) -> None:
        """Fails all means, and every one that begins from now on."""
        self._broken = error
        for key in list(self._open):
            self._fail(key, error)

    def _begin(self, what: Take, pending: PendingReply, effect: Mean) -> None:
        """Begins a mean; its strips follow once their numbers are there.

        Members that have left are asked to stand by, with weight zero.
        """
        key = key_of(what.name, what.among)
        meeting = self._open[key] = meeting_of(what, pending, effect, self._me, self._tools)
        gone = [self._lost[rank] for rank in what.among if rank in self._lost]
        if gone or self._broken:
            self._fail(key, self._broken or gone[0])
            return
        for rank in self._away.intersection(what.among):
            self._send(rank, 0, what)
        for strip in range(meeting.strips):
            ready = functools.partial(self._todo.put, functools.partial(self._ready, key, strip))
            if (needs := meeting.needs(strip)) is None:
                ready()
            else:
                self._adder.when(needs, ready)

    def _ready(self, key: int, strip: int) -> None:
        """Begins a strip whose numbers are there: strips of a gradient leave in the order that backward fills them."""
        meeting = self._open.get(key)
        if meeting is None:
            return
        meeting.ready[strip] = None
        if len(meeting.parts) < meeting.at_once or id_of(key, strip, 0) in self._early:
            self._begin_strip(key, meeting, strip)

    def _begin_strip(self, key: int, meeting: Meeting, strip: int) -> None:
        """Sends the first pieces of a strip, and takes those that came before it had begun."""
        self._post(key, meeting, strip, meeting.begin(strip).begin())
        self._done(key, meeting, strip)
        for src, envelope in self._taken_out(id_of(key, strip, 0)):
            self._arrived(src, envelope)

    def _arrived(self, src: int, envelope: Envelope) -> None:
        """Takes a piece, or keeps it until this worker begins that strip.

        A piece for a strip that is ready makes it begin out of turn: the other member would wait for it in vain
        otherwise.
        """
        key, strip, step = from_id(envelope.id)
        meeting = self._open.get(key)
        if meeting is None or strip not in meeting.parts:  # the other one is ahead
            if key not in self._closed:
                self._keep(id_of(key, strip, 0), src, envelope)
            if meeting is not None and strip in meeting.ready:  # nobody waits for one that could go on
                self._begin_strip(key, meeting, strip)
            return
        meeting.heard()
        try:
            self._take(key, meeting, strip, src, step, envelope.message)
        except (ValueError, ProtocolError) as error:
            among = meeting.what.among
            if isinstance(error, FalsePieceError):
                src = src if error.member is None else among[error.member]
                error = FalsePieceError(f"worker {src}: {error}")
            member = f"member {among.index(src)}" if src in among else ""  # a schedule knows positions, not ranks
            why = f"{meeting.what.name}: {str(error).replace(member or str(error), f'worker {src}')}"
            self._refuse(src, f"Piece: {why}")
            # What it had for this strip is nowhere else, so the mean cannot go on without it.
            self._fail(key, ProtocolError(why))

    def _keep(self, at: int, src: int, envelope: Envelope) -> None:
        """Keeps a piece for a strip that this worker has not begun, unless its sender has too many here."""
        if self._kept[src] >= EARLY_MAX:
            self._refuse(src, f"Piece: {EARLY_MAX} pieces of means that nobody else has begun")
            return
        self._kept[src] += 1
        self._early.setdefault(at, []).append((src, envelope))

    def _taken_out(self, at: int) -> list[tuple[int, Envelope]]:
        """Returns what was kept for a strip, and keeps it no more."""
        held = self._early.pop(at, [])
        self._kept.subtract(src for src, _ in held)
        return held

    def _take(self, key: int, meeting: Meeting, strip: int, src: int, step: int, piece: Piece) -> None:
        """Adds a piece and sends what the schedule says. Raises ValueError for a vector of another length."""
        what = meeting.what
        if piece.length != what.length:
            raise ValueError(f"{what.length} numbers here, {piece.length} at worker {src}")
        sent = meeting.parts[strip].take(
            step, what.among.index(src), meeting.arrived(piece.v, piece.weight), piece.weight
        )
        self._post(key, meeting, strip, sent)
        self._done(key, meeting, strip)

    def _done(self, key: int, meeting: Meeting, strip: int) -> None:
        """Closes a strip that is done, and begins the next one, or ends the mean."""
        if key not in self._open or not meeting.parts[strip].done:
            return
        meeting.finished(strip)
        if meeting.done == meeting.strips:
            self._finish(key, meeting)
        elif meeting.ready:
            self._begin_strip(key, meeting, next(iter(meeting.ready)))

    def _post(self, key: int, meeting: Meeting, strip: int, outgoing: Iterable[OutgoingPiece]) -> None:
        """Sends pieces to the members that the schedule names."""
        what = meeting.what
        for o in outgoing:
            # What a liar says it weighs is bounded, and so has to be what others make of it, or they seem to lie.
            weight = min(o.weight, self._most_weight())
            piece = Piece(v=meeting.leaving(o.v), weight=weight, length=what.length)
            self._send(what.among[o.dst], id_of(key, strip, o.step), piece)

    def _send(self, rank: int, id: int, message: Any) -> None:
        """Sends a message to a worker; one that cannot be reached counts as lost."""
        try:
            self._transport.send(party.worker(rank), Envelope(Kind.MEAN, message, id))
        except PacelineError as error:
            self._lose(rank, PeerLost(str(error)))

    def _finish(self, key: int, meeting: Meeting) -> None:
        """Gives the result to whoever waits for it."""
        self._forget(key)
        try:
            meeting.pending.put(0, meeting.result(), meeting.seconds_communicating)
        except Diverged as error:
            meeting.pending.fail(error)

    def _fail(self, key: int, error: BaseException) -> None:
        """Ends a mean with an error."""
        meeting = self._open.get(key)
        if meeting:
            self._forget(key)
            meeting.pending.fail(error)

    def _forget(self, key: int) -> None:
        """Forgets a mean that is over; its key is kept, so that late pieces are known for what they are."""
        meeting = self._open.pop(key)
        self._closed.append(key)
        for strip in range(meeting.strips):
            self._taken_out(id_of(key, strip, 0))

    # ---- those who are not there any more ----------------------------------------------------------------
    def _left(self, rank: int) -> None:
        """Notes that a worker has left, and asks it to stand by in the means that are open."""
        self._away.add(rank)
        for meeting in list(self._open.values()):
            if rank in meeting.what.among:
                self._send(rank, 0, meeting.what)

    def _stand_by(self, src: int, what: Take) -> None:
        """Takes part in a mean of others with weight zero, as this worker has left."""
        if not self._has_left or self._me not in what.among or len(self._open) >= CLOSED_MAX:
            self._refuse(src, f"Take: it asks for a part of {what.name} that this worker does not have to give")
            return
        key = key_of(what.name, what.among)
        if key not in self._open and key not in self._closed:
            nothing = Mean(self._memory.empty(what.length), what.among, what.name, 0.0)
            self._begin(what, PendingReply(f"Mean {what.name} of others", 1, self._memory), nothing)

    def _lose(self, rank: int, why: PacelineError) -> None:
        """Fails all means with a worker that is lost, or whose pieces cannot be."""
        self._lost[rank] = why
        for key, meeting in list(self._open.items()):
            if rank in meeting.what.among:
                self._fail(key, why)
