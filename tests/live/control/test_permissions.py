"""Roles x verbs: every role to every role, every kind of frame, every message that there is."""

from __future__ import annotations

import itertools

import pytest

import paceline.schemes  # noqa: F401  enters the messages of all schemes
from paceline.core import message
from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import COORDINATOR, EVALUATOR, server, worker
from paceline.core.errors import ProtocolError
from paceline.core.paramserver.gated_server import Push, Weights
from paceline.live.collectives import store
from paceline.live.collectives.peer_backend import Piece
from paceline.live.control import permissions
from paceline.live.control.permissions import may_send
from paceline.live.net.zero_copy import Opened
from paceline.live.protocol.transport import Kind
from paceline.live.security.handshake import Challenge, Greeting, Proof

ROLES = ("worker", "server", "evaluator", "coordinator", "stranger")


REGISTERED = [cls for cls in message._types.values() if cls.__module__.startswith("paceline.")]


CONTROL = [cls for cls in REGISTERED if message.plane_of(cls) == "control"]


OTHERS = [cls for cls in REGISTERED if message.plane_of(cls) == "scheme"]


def pairs(cls: type, kind: Kind) -> set[tuple[str, str]]:
    """Who may send it to whom."""
    return {(a, b) for a, b in itertools.product(ROLES, ROLES) if may_send(a, b, kind, cls)}


def test_every_message_of_the_control_plane_has_a_row() -> None:
    assert set(CONTROL) == set(permissions.CONTROL)


@pytest.mark.parametrize("cls", CONTROL, ids=lambda cls: cls.__name__)
def test_control_goes_as_its_row_says_and_as_control_only(cls: type) -> None:
    senders, receivers = permissions.CONTROL[cls]
    assert pairs(cls, Kind.CONTROL) == set(itertools.product(senders, receivers))
    assert all(pairs(cls, kind) == set() for kind in Kind if kind != Kind.CONTROL)


def test_nobody_but_the_coordinator_gives_orders() -> None:
    orders = (control.Roster, control.Plan, control.Go, control.Stop, control.Finish, control.Exit, control.WorkerLeft)
    for cls in orders:
        assert {sender for sender, _ in pairs(cls, Kind.CONTROL)} == {"coordinator"}, cls


@pytest.mark.parametrize("cls", OTHERS, ids=lambda cls: cls.__name__)
def test_schemes_speak_among_those_who_train_and_not_as_control(cls: type) -> None:
    among = set(itertools.product(("worker", "server", "coordinator"), repeat=2))
    assert [pairs(cls, kind) for kind in (Kind.TELL, Kind.CALL, Kind.REPLY)] == [among] * 3
    assert pairs(cls, Kind.CONTROL) == pairs(cls, Kind.MEAN) == set()


@pytest.mark.parametrize("cls", permissions.COPIES)
def test_copies_are_told_among_servers_alone(cls: type) -> None:
    assert {kind: pairs(cls, kind) for kind in Kind if pairs(cls, kind)} == {Kind.TELL: {("server", "server")}}


def test_workers_ask_the_coordinator_where_they_meet_and_nobody_else_asks_or_answers() -> None:
    for messages, kind, way in (
        (store.QUESTIONS, Kind.CALL, ("worker", "coordinator")),
        (store.ANSWERS, Kind.REPLY, ("coordinator", "worker")),
    ):
        for cls in messages:
            assert {other: pairs(cls, other) for other in Kind if pairs(cls, other)} == {kind: {way}}


def test_means_are_among_workers() -> None:
    assert pairs(Piece, Kind.MEAN) == {("worker", "worker")}
    assert all(pairs(Piece, kind) == set() for kind in Kind if kind != Kind.MEAN)


def test_a_stranger_may_nothing_and_what_belongs_to_a_connection_is_no_message() -> None:
    assert [cls for cls in REGISTERED for kind in Kind for pair in pairs(cls, kind) if "stranger" in pair] == []
    of_connections = {cls for cls in REGISTERED if message.plane_of(cls) == "connection"}
    assert of_connections > {Greeting, Challenge, Proof, Opened}
    assert [pairs(cls, kind) for cls in of_connections for kind in Kind] == [set()] * len(of_connections) * len(Kind)


def test_the_plane_that_its_class_declares_decides_and_not_the_file_that_it_stands_in() -> None:
    planes: tuple[tuple[message.Plane, set[Kind]], ...] = (("control", {Kind.CONTROL}), ("connection", set()))
    for plane, allowed in planes:
        moved = message.message(f"elsewhere.{plane}", plane=plane)(
            type("Moved", (), {"__module__": "paceline.schemes.x"})
        )
        assert {kind for kind in Kind if pairs(moved, kind)} == allowed


def test_what_may_not_be_sent_is_refused_by_name() -> None:
    with pytest.raises(ProtocolError, match="worker 3 may not send Exit as CONTROL to server 0"):
        permissions.check_class(worker(3), server(0), Kind.CONTROL, control.Exit)
    with pytest.raises(ProtocolError, match="evaluator may not send Push as CALL to server 0"):
        permissions.check_class(EVALUATOR, server(0), Kind.CALL, Push)
    permissions.check_class(server(0), worker(3), Kind.REPLY, Weights)
    permissions.check_class(COORDINATOR, worker(3), Kind.CONTROL, control.Exit)
