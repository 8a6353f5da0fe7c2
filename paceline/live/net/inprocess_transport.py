"""This transport connects threads of one process: messages pass by reference.

That is safe because vectors are values: what was sent is never changed. Each party has one thread, which runs its
handler, its timers and nothing else, so the handler sees the same guarantees as over sockets: FIFO from each sender,
one call at a time, `lost` once for each incarnation.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import threading
import time
from collections.abc import Callable, Sequence

from paceline.core.coordination.party import Party
from paceline.core.errors import PeerLost
from paceline.core.fault_tolerance.peer_incarnations import PeerIncarnations
from paceline.core.message import size
from paceline.live.protocol.transport import HERE, Envelope, Handler
from paceline.live.protocol.wakeable_event import WakeableEvent


class Hub:
    """Connects all parties of one run in this process."""

    def __init__(self) -> None:
        self._members: dict[Party, HubTransport] = {}
        self.lock = threading.Lock()  # an incarnation is dropped by its receiver and by its successor, and lost once

    def transport(
        self, me: Party, failed: Callable[[BaseException], None] | None = None, incarnation: int = 0
    ) -> HubTransport:
        """Adds a party. `failed` is called with an exception that escaped the handler, in the handler's place.

        An earlier incarnation that is still there, since it hangs, is lost to all others: nothing will find it any
        more, and they would wait for its answers.
        """
        member = HubTransport(self, me, failed, incarnation)
        former = self._members.get(me)
        if former is not None and former.incarnation < incarnation:
            for other in list(self._members.values()):
                if other is not former:
                    other.drop(me, former.incarnation, "it came back")
        self._members[me] = member
        return member

    def find(self, party: Party) -> HubTransport | None:
        """Returns the transport of a party that is there, or None."""
        return self._members.get(party)

    def leave(self, leaver: HubTransport, why: str) -> None:
        """Tells all others that `leaver` is lost, unless a later incarnation has taken its place."""
        if self._members.get(leaver.me) is leaver:
            del self._members[leaver.me]
            for member in list(self._members.values()):
                member.post_lost(leaver.me, why)


class HubTransport:
    """Holds one party's inbox and the thread that empties it."""

    def __init__(
        self, hub: Hub, me: Party, failed: Callable[[BaseException], None] | None, incarnation: int = 0
    ) -> None:
        self.me, self._hub, self._failed, self.incarnation = me, hub, failed, incarnation
        # Not a `Queue`, whose lock stays held where Ctrl-C comes while the main thread puts a message into it.
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = itertools.count()
        self._thread = threading.Thread(target=self._run, name=f"net of {me}", daemon=True)
        self._peers = PeerIncarnations[Party]()
        self._handler: Handler | None = None
        self._sent = self._received = 0

    @property
    def address(self) -> str:
        """Returns a name that looks like an address; `connect` finds the party by the party itself."""
        return f"hub:{self.me}"

    def open(self, handler: Handler) -> None:
        """Begins to deliver to `handler`, on a thread of its own."""
        self._handler = handler
        self._thread.start()

    def connect(self, party: Party, address: str, incarnation: int = 0) -> None:
        """Meets a party anew. Raises PeerLost where it is not in this process."""
        member = self._hub.find(party)
        if member is not None:
            self._peers.meets(party, member.incarnation)
        if self._reached(party) is None:
            raise PeerLost(f"{self.me} cannot reach {party}: it is not in this process")

    def _reached(self, party: Party) -> HubTransport | None:
        """Returns the other party, or None: it is away, one dropped the other, or it is another incarnation."""
        member = self._hub.find(party)
        if member is None or self.refuses(member) or member.refuses(self):
            return None
        if self._peers.met(party) is None:
            self._peers.meets(party, member.incarnation)
        return member if self._peers.met(party) == member.incarnation else None

    def refuses(self, other: HubTransport) -> bool:
        """Returns True if the other party's incarnation was dropped by this one."""
        return self._peers.is_over(other.me, other.incarnation)

    def send(self, to: Party, envelope: Envelope) -> None:
        """Puts a message into the other party's inbox. Raises PeerLost where it cannot be reached.

        The envelope is copied, as both sides write into it.
        """
        member = self._reached(to)
        if member is None:
            raise PeerLost(f"{self.me} has no connection to {to}")
        self._sent += size(envelope.message)
        envelope.sent_at = time.monotonic()
        member.post(self, Envelope(envelope.kind, envelope.message, envelope.id, envelope.slice, envelope.server_view))

    def post(self, src: HubTransport, envelope: Envelope) -> None:
        """Takes a message of `src`, from any thread."""
        self._inbox.put(lambda: self._deliver(src, envelope))

    def post_lost(self, party: Party, why: str) -> None:
        """Takes the news that a party is gone, from any thread."""
        self._inbox.put(lambda: self._lose(party, why))  # by the handler it has then: it may not be open yet

    def _lose(self, party: Party, why: str) -> None:
        assert self._handler is not None
        self._handler.lost(party, why)

    def _deliver(self, src: HubTransport, envelope: Envelope) -> None:
        """Hands a message to the handler, unless its sender has been dropped while it was on its way."""
        assert self._handler is not None
        if self.refuses(src):  # it was on its way
            return
        self._peers.meets(src.me, src.incarnation)
        self._received += size(envelope.message)
        self._handler.deliver(src.me, envelope)

    def drop(self, party: Party, incarnation: int, why: str) -> None:
        """Ends the connection to `incarnation` of a party and to all before it; both sides hear of it once."""
        other = self._hub.find(party)
        with self._hub.lock:
            if other is not None and other.incarnation <= incarnation and not self.refuses(other):
                self.post_lost(party, why)
                other.post_lost(self.me, "the other side closed the connection")
            self._peers.end(party, incarnation)

    def incarnation_of(self, party: Party) -> int:
        """Returns the incarnation of a party that was heard last."""
        return self._peers.met(party) or 0

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        """Calls `action` after so many seconds, on the transport's thread."""
        when = time.monotonic() + seconds
        self._inbox.put(lambda: heapq.heappush(self._timers, (when, next(self._sequence), action)))

    def traffic(self) -> tuple[int, int]:
        """Returns the bytes of vectors sent and received: there is no socket to count frames at."""
        return self._sent, self._received

    def traffic_with(self) -> dict[Party, tuple[int, int]]:
        """Returns nothing: there are no connections."""
        return {}

    def progress(self, party: Party) -> tuple[int, bool]:
        """Returns a constant: nothing is ever on its way here."""
        return 0, False

    def wait(self, event: WakeableEvent, whom: Sequence[Party], timeout_s: float) -> bool:
        """Waits for an event; messages are delivered on the transport's thread."""
        return event.wait(timeout_s)

    def way_to(self, party: Party) -> str:
        """Returns the kind of way to a party. Raises PeerLost where there is none."""
        if self._hub.find(party) is None:
            raise PeerLost(f"{self.me} has no connection to {party}")
        return HERE

    def shared(self) -> tuple[int, int]:
        """Returns the bytes of vectors sent and received by reference: here those are all."""
        return self.traffic()

    def close(self) -> None:
        """Leaves the hub, which tells the others, and ends the thread."""
        self._hub.leave(self, "it left")
        self._inbox.put(None)
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(1.0)

    def _run(self) -> None:
        """Is the thread's main function. An exception of the handler ends the deliveries and is reported."""
        try:
            self._deliver_all()
        except BaseException as error:
            assert self._handler is not None
            (self._failed or self._handler.failed)(error)

    def _deliver_all(self) -> None:
        """Carries out what is in the inbox, and timers that are due, until it is closed.

        Timers are looked at before each message: a party with many messages would otherwise never get to them.
        """
        while True:
            while self._timers and self._timers[0][0] <= time.monotonic():  # due, however many messages wait
                heapq.heappop(self._timers)[2]()
            wait = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
            try:
                action = self._inbox.get(timeout=wait)
            except queue.Empty:
                continue
            if action is None:
                return
            action()
