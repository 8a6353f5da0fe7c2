"""What the transport's thread does with messages, and who hears what the control plane tells a party."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import COORDINATOR, Party, server, worker
from paceline.core.errors import ProtocolError
from paceline.core.fault_tolerance.replication import Copied
from paceline.core.paramserver.gated_server import Push
from paceline.core.role import Role, RoleContext
from paceline.live.control.handlers import PartyCallbacks
from paceline.live.control.session import Session
from paceline.live.net.inprocess_transport import Hub
from paceline.live.node.hosted_slice import Declined, ServedSlice
from paceline.live.node.node import Node
from paceline.live.node.published_state import ReadState, StateGone
from paceline.live.protocol.row_packing import Packed, PackingPost, Parcel
from paceline.live.protocol.transport import Envelope, Kind, LossCause
from tests.live.fakes import NumpyMemory


def session_of(me: Party) -> Session:
    transport = Hub().transport(me)
    return Session(transport, Node(transport, NumpyMemory()))


def tell(session: Session, message: Any, src: Party = COORDINATOR) -> None:
    session.handlers.deliver(src, Envelope(Kind.CONTROL, message))


def test_a_party_has_one_set_of_callbacks() -> None:
    session = session_of(worker(0))
    session.attach(PartyCallbacks())
    with pytest.raises(AssertionError, match="worker 0 has callbacks already"):
        session.attach(PartyCallbacks())


def test_each_callback_hears_what_is_for_it() -> None:
    heard: list[Any] = []
    callbacks = PartyCallbacks(
        on_party_lost=heard.append,
        on_rate=lambda rank, rate: heard.append((rank, rate)),
        on_capture=heard.append,
    )
    session = session_of(server(0))
    capture, rate = control.Capture(version=3), control.Rate(lr=0.5)
    tell(session, capture)  # nobody hears yet
    session.attach(callbacks)
    tell(session, capture)
    tell(session, rate, worker(1))
    session.handlers.lost(worker(1), "reset")
    assert heard == [capture, (1, rate), worker(1)]


def test_a_newcomer_is_confirmed_once_the_copy_knows_it() -> None:
    held: list[Callable[[], None]] = []
    joined: list[int] = []
    session = session_of(server(0))
    session.attach(PartyCallbacks(on_worker_joined=joined.append))
    session.node.after_replicated = held.append
    tell(session, control.WorkerJoined(rank=2, incarnation=1, view=4, address="hub:again", host="there"))
    assert joined == [2]
    assert len(held) == 1, "Aware waits"


@pytest.mark.parametrize(("cause", "strikes"), [(LossCause.CLOSED, 0), (LossCause.BROKE_PROTOCOL, 1)])
def test_only_a_worker_that_broke_the_protocol_is_held_to_account_whatever_the_text_says(
    cause: LossCause, strikes: int
) -> None:
    session = session_of(server(0))
    session.handlers.lost(worker(1), "not a Paceline frame", cause)
    assert session.node.message_checks.strikes[worker(1)] == strikes


def test_a_worker_drops_what_another_may_not_send_and_keeps_the_connection() -> None:
    session = session_of(worker(0))
    posted: list[Envelope] = []
    session.node.out.post_if_there = lambda to, envelope: posted.append(envelope)  # type: ignore[method-assign]
    deliver = session.handlers.deliver
    deliver(worker(1), Envelope(Kind.CONTROL, control.Rate(lr=0.5)))  # for servers
    deliver(worker(1), Envelope(Kind.CALL, ReadState(what="anything"), 4))
    deliver(worker(1), Envelope(Kind.CALL, Push(g=None, clock=1, samples=1), 5))  # before there is a role
    assert session.node.message_checks.strikes == {worker(1): 3}
    assert [(envelope.id, type(envelope.message)) for envelope in posted] == [(4, StateGone), (5, Declined)]
    with pytest.raises(ProtocolError):
        deliver(server(0), Envelope(Kind.CONTROL, control.Rate(lr=0.5)))


class Hears(Role):
    def __init__(self) -> None:
        super().__init__(None, RoleContext(me=0, workers=(0, 1), w=None, update=lambda w, g, samples: w))
        self.heard: list[Any] = []

    def on(self, now: float, src: int, message: Any) -> Any:
        self.heard.append(message.n)
        return ()


class WholePacker:
    """Packs a vector as it is."""

    packed = np.ndarray

    def pack(self, v: Any, to: Party) -> Parcel:
        return Parcel(v, ())

    def plain(self, v: Any) -> Any:
        return v

    def unpack(self, parcel: Parcel, length: int, src: Party) -> Any:
        return parcel.numbers

    def forget(self, party: Party) -> None:
        pass


def test_what_a_party_may_not_send_it_may_not_send_packed_either() -> None:
    """Copies of slices pass between servers. A worker that packed one would have a server keep what the worker says."""
    transport = Hub().transport(server(0))
    session = Session(transport, Node(transport, NumpyMemory(), packer=WholePacker()))
    heard: list[Any] = []
    role = Hears()
    role.on = lambda now, src, message: heard.append(message) or ()  # type: ignore[method-assign, assignment]
    session.node.host([ServedSlice(role=role)])
    sender: Any = Posted(worker(0))
    PackingPost(sender, WholePacker()).send(
        server(0), Envelope(Kind.TELL, Copied(slice=0, name="w", v=np.ones(2, np.float32)))
    )
    (packed,) = sender.sent
    assert isinstance(packed.message, Packed)
    session.handlers.deliver(worker(0), packed)
    assert heard == []
    assert session.node.message_checks.strikes[worker(0)] == 1


def test_the_clock_of_a_message_that_servers_went_back_past_is_not_held_against_the_one_that_repeats_it() -> None:
    session = session_of(server(0))
    role = Role(None, RoleContext(me=0, workers=(0, 1), w=None, update=lambda w, g, samples: w))
    session.node.host([ServedSlice(role=role)])
    heard: list[int] = []
    role.on = lambda now, src, message: heard.append(message.clock) or ()  # type: ignore[method-assign, assignment]

    def push(clock: int, view: int) -> None:
        message = Push(clock=clock, g=np.ones(2, np.float32), samples=1)
        session.handlers.deliver(worker(0), Envelope(Kind.TELL, message, server_view=view))

    session.node.begin_server_view(4)
    push(33, view=3)  # it was on its way when the servers went back
    for clock in (33, 34, 35):
        push(clock, view=4)
    assert heard == [33, 34, 35]
    assert not session.node.message_checks.strikes


def test_a_call_that_is_sent_again_to_a_server_that_had_it_is_no_false_claim() -> None:
    """A worker called the successor of a lost server before it was told to send its calls again."""
    session = session_of(server(0))
    role = Role(None, RoleContext(me=0, workers=(0, 1), w=None, update=lambda w, g, samples: w))
    session.node.host([ServedSlice(role=role)])
    heard: list[tuple[int, int]] = []
    role.on = lambda now, src, message: heard.append((src, message.clock)) or ()  # type: ignore[method-assign, assignment]

    def push(clock: int, id: int, rank: int = 0, view: int = 0) -> None:
        message = Push(clock=clock, g=np.ones(2, np.float32), samples=1)
        session.handlers.deliver(worker(rank), Envelope(Kind.CALL, message, id, server_view=view))

    for clock, id, rank in ((119, 7, 0), (119, 7, 0), (120, 8, 0), (121, 9, 0), (120, 8, 0), (33, 7, 1)):
        push(clock, id, rank)
    assert heard == [(0, 119), (0, 120), (0, 121), (1, 33)]
    session.node.begin_server_view(0)  # restored once more: what was under way here is sent again
    push(121, 9)
    session.node.gone(1)
    session.node.came(1)
    push(34, 7, rank=1)  # the next incarnation, whose numbers begin anew
    assert heard[4:] == [(0, 121), (1, 34)]
    assert not session.node.message_checks.strikes
    push(121, 10)
    assert session.node.message_checks.strikes[worker(0)] == 1, "another call that names the same clock is one"


class Posted:
    """A transport that keeps what is sent."""

    def __init__(self, me: Party) -> None:
        self.me = me
        self.sent: list[Envelope] = []

    def send(self, to: Party, envelope: Envelope) -> None:
        self.sent.append(envelope)
