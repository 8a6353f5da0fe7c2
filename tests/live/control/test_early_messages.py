"""Messages that arrive before their party has a role are kept for it."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import Party, worker
from paceline.core.sharding import NOWHERE
from paceline.live.control.session import Session
from paceline.live.net.inprocess_transport import Hub
from paceline.live.node.node import Node
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.control.test_handlers import Hears, session_of, tell
from tests.live.fakes import NumpyMemory, Recorder, happened
from tests.live.node_fixture import Ask


def test_what_reaches_a_newcomer_before_its_role_is_heard_by_the_role_in_that_order() -> None:
    session = session_of(worker(0))
    tell(session, control.Roster(addresses={}, hosts={}, incarnations=(1, 0)))
    for n in (1, 2):
        session.handlers.deliver(worker(1), Envelope(Kind.TELL, Ask(v=np.zeros(1, np.float32), n=n)))
    role = Hears()
    session.enter(role, NOWHERE)
    session.handlers.deliver(worker(1), Envelope(Kind.TELL, Ask(v=np.zeros(1, np.float32), n=3)))
    assert role.heard == [1, 2, 3]


def test_what_comes_while_the_role_hears_what_was_kept_is_heard_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not even decoded before: it may be the difference to a vector that was kept."""
    session = session_of(worker(0))
    tell(session, control.Roster(addresses={}, hosts={}, incarnations=(1, 0)))

    def deliver(n: int) -> None:
        session.handlers.deliver(worker(1), Envelope(Kind.TELL, Ask(v=np.zeros(1, np.float32), n=n)))

    deliver(1)
    deliver(2)
    pass_on = session.handlers.pass_on
    comes = [threading.Thread(target=deliver, args=(3,))]
    kept: list[bool] = []

    def heard(src: Party, envelope: Envelope) -> None:
        for thread in comes:
            comes.clear()
            thread.start()
            thread.join(30)
            kept.append(not thread.is_alive())
        pass_on(src, envelope)

    monkeypatch.setattr(session.handlers, "pass_on", heard)
    role = Hears()
    session.enter(role, NOWHERE)
    assert kept == [True], "it has not been decoded, only kept"
    assert role.heard == [1, 2, 3]


def test_a_role_that_is_told_of_a_loss_hears_nothing_of_the_lost_worker() -> None:
    session = session_of(worker(0))
    tell(session, control.Roster(addresses={}, hosts={}, incarnations=(1, 0, 0)))
    for rank in (1, 2):
        session.handlers.deliver(worker(rank), Envelope(Kind.TELL, Ask(v=np.zeros(1, np.float32), n=rank)))
    tell(session, control.WorkerLeft(rank=1, lost=True, incarnation=0))
    role = Hears()
    session.enter(role, NOWHERE)
    assert role.heard == [2]


class HearsAll(Hears):
    """Keeps who comes and goes among what it hears."""

    def on_worker_left(self, now: float, rank: int) -> Any:
        self.heard.append("left")
        return ()

    def on_worker_joined(self, now: float, rank: int) -> Any:
        self.heard.append("joined")
        return ()


def heard_of_two_incarnations(order: control.WorkerLeft) -> list[Any]:
    """What the role of a newcomer hears which is told `order`, about the first incarnation of worker 1, when the second
    has sent it something. Each sends its number."""
    hub = Hub()
    transport = hub.transport(worker(0))
    session = Session(transport, Node(transport, NumpyMemory()))
    session.node.after_replicated = lambda act: None  # there is no coordinator to be told
    tell(session, control.Roster(addresses={}, hosts={}, incarnations=(1, 0)))
    transport.open(session.handlers)
    for incarnation in (0, 1):
        sender = hub.transport(worker(1), incarnation=incarnation)
        sender.open(Recorder())
        sender.send(worker(0), Envelope(Kind.TELL, Ask(v=np.zeros(1, np.float32), n=incarnation)))
        if not incarnation:
            sender.close()
    arrived = threading.Event()
    transport.call_later(0.0, arrived.set)
    assert happened(arrived)
    tell(session, order)
    tell(session, control.WorkerJoined(rank=1, incarnation=1, view=3, address="", host=""))
    role = HearsAll()
    session.enter(role, NOWHERE)
    for member in (sender, transport):
        member.close()
    return role.heard


def test_what_the_next_incarnation_has_sent_reaches_the_role_though_the_loss_of_the_former_is_told_later() -> None:
    lost = control.WorkerLeft(rank=1, lost=True, incarnation=0)
    assert heard_of_two_incarnations(lost) == ["joined", 1]


def test_what_the_next_incarnation_has_sent_reaches_the_role_when_that_knows_of_its_coming() -> None:
    assert heard_of_two_incarnations(control.WorkerLeft(rank=1, incarnation=0)) == [0, "joined", 1]
