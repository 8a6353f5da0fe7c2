"""What the live driver needs of whatever carries its messages, and what that may ask of the driver.

Contracts: FIFO per ordered pair of parties among messages of schemes, and among CONTROL; CONTROL may overtake messages
of schemes, so that it never waits behind large ones, and is never overtaken. A handler's methods are called on the
transport's thread, or on one that waits for an answer, never two at a time. What was sent is not changed by anyone
until it has left.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import msgspec

from paceline.core.coordination.party import Party
from paceline.core.errors import PeerLost
from paceline.live.protocol.wakeable_event import WakeableEvent

SHARED, TCP, HERE = "shared memory", "TCP", "this process"
"""Ways between two parties: of one host, of two hosts or where memory is not shared, of one process."""


class LossCause(enum.Enum):
    """Says why a connection is gone, as far as somebody decides by it."""

    CLOSED = enum.auto()  # the other side or this one closed it, or the network failed
    BROKE_PROTOCOL = enum.auto()  # the other side sent what is no message of this protocol


class Kind(enum.IntEnum):
    """Says what a message is for; between a CALL and its REPLY an id makes the pair."""

    TELL = 1
    CALL = 2
    REPLY = 3
    CONTROL = 4
    MEAN = 5  # between those who carry means; the id says of which one, which strip and which step


TELL, CALL, REPLY, CONTROL, MEAN = Kind
"""For what is asked of every message: in Python 3.11 `Kind.CALL` takes as long as a call."""


class Envelope(msgspec.Struct):
    """An envelope is a message in transit. `id` pairs a REPLY with its CALL; `slice` says for which slice of the
    receiver it is.

    `server_view`: since the servers went back last, what belongs to an earlier one counts no more; see `Node.go_back`.
    `queued_at`: when it was handed to the transport, which fills in `sent_at`, when the last byte was handed over, and
    `seconds_receiving`, from the first byte read to the last.
    """

    kind: Kind
    message: Any
    id: int = 0
    slice: int = 0
    server_view: int = 0
    queued_at: float = 0.0
    sent_at: float = 0.0
    seconds_receiving: float = 0.0


class Handler(Protocol):
    """Describes the party behind a transport, which is told of messages and losses."""

    def deliver(self, src: Party, envelope: Envelope) -> None:
        """Takes a whole message that has arrived."""

    def room_for(
        self, src: Party, kind: Kind, id: int, cls: type, lengths: Sequence[int], shared: Sequence[Any]
    ) -> list[Any]:
        """Vectors of these lengths: those that are there already, and new ones to receive the others into.

        `shared` has the vectors that need no room, None for each other, and is empty when all do.
        Raises ProtocolError when such a message is not expected.
        """

    def lost(self, src: Party, why: str, cause: LossCause = LossCause.CLOSED) -> None:
        """The connection to `src` is gone. `why` is for people to read; decisions go by `cause`."""

    def failed(self, error: BaseException) -> None:
        """`error` escaped one of these methods; nothing more will be delivered."""


class Post(Protocol):
    """Describes what takes the messages that one party sends."""

    me: Party

    def send(self, to: Party, envelope: Envelope) -> None:
        """Sends at once, and never waits for the receiver. Raises PeerLost when there is no way to `to`."""


class Transport(Post, Protocol):
    """Describes one party's way to the others."""

    @property
    def address(self) -> str:
        """Returns where others reach this party."""

    def open(self, handler: Handler) -> None:
        """Begins to deliver."""

    def connect(self, party: Party, address: str, incarnation: int = 0) -> None:
        """Connects to that incarnation of `party`, unless it is connected; waits for it. Raises PeerLost."""

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        """Run `action` on the thread that delivers, about `seconds` from now."""

    def drop(self, party: Party, incarnation: int, why: str) -> None:
        """On the thread that delivers: that incarnation of `party` is over, and so are those before it.

        Their connection is closed, and no other of theirs is accepted or made. A later incarnation may connect.
        """

    def incarnation_of(self, party: Party) -> int:
        """Returns which incarnation of `party` the message is from that is being delivered.

        The handler may ask in `deliver`. Once a message of one incarnation was delivered, none of an earlier one is.
        """

    def way_to(self, party: Party) -> str:
        """Says how messages to `party` travel: SHARED, TCP or HERE. Raises PeerLost when they do not."""

    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received so far: frames and all, as counted at the socket, and vectors that were shared."""

    def traffic_with(self) -> dict[Party, tuple[int, int]]:
        """Returns the bytes sent to and received from each party that is connected now, over that connection."""

    def progress(self, party: Party) -> tuple[int, bool]:
        """Returns a number that grows while bytes come from `party` or reach it, and whether some are on their way."""

    def wait(self, event: WakeableEvent, whom: Sequence[Party], timeout_s: float) -> bool:
        """Waits for an event that a message of one of `whom` will set; returns whether it is set.

        The handler may be called on this thread meanwhile, though never on two at a time: the caller holds no lock that
        a handler takes.
        """

    def shared(self) -> tuple[int, int]:
        """Bytes of those vectors: they reached the other side, or came from there, by reference."""

    def close(self) -> None:
        """Sends what is queued, for a second at most, then closes."""


def progress_of(transport: Transport, whom: Sequence[Party]) -> tuple[int, bool]:
    """Returns the progress of several together."""
    told = [transport.progress(who) for who in whom]
    return sum([moved for moved, _ in told]), any(leaving for _, leaving in told)


def tell(transport: Post, to: Iterable[Party], message: Any) -> None:
    """A message of the control plane to each of these that is there; of a loss one hears in another way."""
    for who in to:
        with contextlib.suppress(PeerLost):  # the others must hear all the same
            transport.send(who, Envelope(Kind.CONTROL, message))
