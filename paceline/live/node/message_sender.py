"""Sends the messages of one party: cuts them into slices, encodes them, and keeps the calls that are not answered.

message of the scheme  ->  one part a slice (`Scatter`)  ->  held until its vectors are there (`DeferredSends`)
                       ->  codec, rows, frames (`MessageChannel`)  ->  transport
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from paceline.core.collective.mean_server import Part
from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.core.effects import SERVERS, Mean, To
from paceline.core.errors import PeerLost, Stopped
from paceline.core.message import scatter, vector_fields
from paceline.core.parties.outgoing_calls import OutgoingCalls
from paceline.core.sharding import NOWHERE, Layout
from paceline.core.vector import Memory, is_arriving
from paceline.live.node.deferred_send import DeferredSends
from paceline.live.node.peer_connections import PeerConnections
from paceline.live.node.published_state import ReadState
from paceline.live.protocol.channel import MessageChannel
from paceline.live.protocol.pending_reply import PendingReply
from paceline.live.protocol.transport import Envelope, Kind


class OpenCall(NamedTuple):
    """Names what a call is for: the answer is part `part` of `pending`."""

    pending: PendingReply
    part: int


class Scatter:
    """Cuts messages to the servers into parts, one a slice of `layout`, and orders them for sending."""

    def __init__(self, layout: Layout) -> None:
        self.slices, self.edges = layout.slices, layout.edges
        order = [(at, server, part) for part, (server, at) in enumerate(layout.homes())]
        # The first slices of all servers first, so that none is idle while another one's are sent.
        self._order = [(part, party.server(server), at) for at, server, part in sorted(order)]

    def parts(self, to: To, whole: Any) -> list[tuple[int, Party, int, Any]]:
        """Returns number, receiver, the receiver's slice and content of each part, in the order of sending."""
        if to == SERVERS:
            if len(self._order) == 1:
                part, server, at = self._order[0]
                return [(part, server, at, whole)]
            pieces = scatter(whole, self.slices)
            return [(part, server, at, pieces[part]) for part, server, at in self._order]
        return [(0, party.COORDINATOR if isinstance(to, str) else party.worker(to), 0, whole)]


class MessageSender:
    """Sends from any thread. `lock` is that of the party: while it is held no call is opened or closed."""

    def __init__(
        self,
        channel: MessageChannel,
        memory: Memory,
        lock: threading.RLock,
        timeout_s: float,
        loopback: Callable[[Envelope], None],
    ) -> None:
        """`timeout_s` bounds the wait for each answer, in seconds. `loopback` takes what this party sends itself."""
        self.loopback = loopback
        self.memory, self.timeout_s = memory, timeout_s
        self.departures = 0  # of workers, in the course of training
        self._channel, self._lock = channel, lock
        self.streams = DeferredSends(channel)
        self.cut = Scatter(NOWHERE)
        self.calls = OutgoingCalls[OpenCall](channel.me)
        self.neighbours = PeerConnections(channel.me, self._ask_past_role, lock, timeout_s)
        self._confirmation = self.neighbours.confirmation

    def send(self, to: Party, envelope: Envelope, part: int, *, behind_calls: bool = False) -> None:
        """Sends one part, now or when its vectors are there. `part`: the slice that it is for or comes from.

        behind_calls: where calls to `to` will be sent again, this goes behind them.

        Raises PeerLost, unless `to` is a server that will be replaced: then the call stays open and is repeated.
        """
        if to == self._channel.me:
            self.loopback(envelope)
            return
        message = envelope.message
        if behind_calls and self._goes_with_calls(to, envelope):
            return
        if type(message) is not ReadState:
            self._confirmation.sent(to)
        try:
            for name in vector_fields(type(message)):
                if is_arriving(getattr(message, name)):
                    self.streams.send(to, envelope, part)
                    return
            if not self.streams.empty:  # it may have to wait for those before it
                self.streams.send(to, envelope, part)
                return
            envelope.queued_at = time.monotonic()
            self._channel.encode_and_send(to, envelope, part)
        except PeerLost:
            if not self.calls.waits_for(to):
                raise

    def _goes_with_calls(self, to: Party, envelope: Envelope) -> bool:
        """Returns True if `to` is a server that is being replaced: a call to it is sent with all that are open."""
        with self._lock:
            away = self.calls.is_away(to)
            if away:
                envelope.queued_at = time.monotonic()
        return away

    def tell(self, to: To, whole: Any, server_view: int | None = None) -> None:
        """Sends `whole` to `to`, in that server view, the present one by default. Raises PeerLost."""
        server_view = self.calls.server_view if server_view is None else server_view
        for part, target, at, piece in self.cut.parts(to, whole):
            self.send(target, Envelope(Kind.TELL, piece, slice=at, server_view=server_view), part)

    def call(self, to: To, whole: Any, *, streams: bool = False, server_view: int | None = None) -> PendingReply:
        """Sends a call; returns its pending reply. `streams`: the caller may read slices while others arrive."""
        what = f"the answer of {to} to {type(whole).__name__}"
        return self.ask(self.cut.parts(to, whole), what, self.cut.edges if streams else (), server_view)

    def _ask_past_role(self, who: Party, question: ReadState) -> PendingReply:
        """Asks `who` itself, not its role, behind all calls to it; returns the pending reply."""
        return self.ask([(0, who, 0, question)], f"the {question.what} of {who}", behind_calls=True)

    def mean_by_servers(self, effect: Mean) -> PendingReply:
        """Asks the servers for a mean; returns its pending reply."""
        return self.call(SERVERS, Part.of(effect))

    def ask(
        self,
        parts: list[tuple[int, Party, int, Any]],
        what: str,
        edges: Sequence[int] = (),
        server_view: int | None = None,
        *,
        behind_calls: bool = False,
    ) -> PendingReply:
        """Sends the parts of one call and returns the pending reply that joins the answers.

        what: names the call in a timeout. edges: slice borders, if the answer may be read while it arrives.
        server_view: of the call, the present one by default; when that ends, the call is void. behind_calls: see
        `send`.
        """
        whom = [target for _, target, _, _ in parts]
        pending = PendingReply(
            what,
            len(parts),
            self.memory,
            edges=edges,
            timeout_s=self.timeout_s,
            way=self._channel.transport,
            whom=whom,
            departures=self._count_departures,
        )
        server_view = self.calls.server_view if server_view is None else server_view
        for part, target, at, piece in parts:
            envelope = None
            try:
                envelope = self.asking(target, at, piece, pending, part, server_view)
                self.send(target, envelope, part, behind_calls=behind_calls)
            except PeerLost as error:  # for whoever waits for the answer, now or later
                if envelope is not None:
                    with self._lock:
                        self.calls.close(envelope.id)
                pending.fail(error)
        return pending

    def asking(
        self, target: Party, at: int, piece: Any, pending: PendingReply, part: int, server_view: int
    ) -> Envelope:
        """Opens the call whose answer is part `part` of `pending`. Raises what `OutgoingCalls.open` does."""
        asked_in = None if isinstance(piece, ReadState) else server_view
        with self._lock:
            number = self.calls.open(target, OpenCall(pending, part), asked_in)
            envelope = Envelope(Kind.CALL, piece, number, at, server_view)
        pending.sent.append(envelope)
        return envelope

    def _count_departures(self) -> int:
        return self.departures

    def ask_again(self, servers: Collection[Party]) -> None:
        """Repeats the unanswered calls to these servers, which were restored from copies.

        A restored server has all that was acknowledged, so a call that it knows already is answered, not applied again.
        A worker that leaves asks that server once more whether it has taken them: the lost one may have said so before.
        """
        with self._lock:  # or a question whether all is taken could be sent before them
            for number, to, call in self.calls.asked_again(servers):
                for envelope in call.pending.sent:
                    if envelope.id == number and envelope.queued_at:
                        if type(envelope.message) is not ReadState:
                            self._confirmation.sent(to)
                        # The same bytes: codecs with error feedback assume that each arrives once.
                        self.post_if_there(to, envelope)

    def post_if_there(self, to: Party, envelope: Envelope) -> None:
        """Sends an envelope as it is; nothing happens where the receiver is gone."""
        with contextlib.suppress(PeerLost):
            self.streams.send(to, envelope)

    def stop(self, error: BaseException | None) -> BaseException:
        """Wakes all waiting calls with `error` (Stopped by default), or with that of an earlier stop; returns it.

        After an error no call to a lost server stays open: who takes its place is told by the coordinator alone.
        """
        with self._lock:
            stopped = self.calls.over or error or Stopped()
            calls = self.calls.close_all(stopped)
            if error is not None and not isinstance(error, Stopped):
                self.calls.retries = False
        for call in calls:
            call.pending.fail(stopped)
        return stopped
