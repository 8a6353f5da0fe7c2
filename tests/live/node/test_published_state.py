"""Who may read what others publish."""

from __future__ import annotations

import paceline.schemes  # noqa: F401  enters the messages of all schemes
from paceline.core import message
from paceline.core.coordination.control_messages import Capture
from paceline.live.node.published_state import PublishedState, ReadState, StateGone
from paceline.live.protocol.transport import Kind
from tests.live.control.test_permissions import pairs

ROLES = ("worker", "server", "evaluator", "coordinator", "stranger")


REGISTERED = [cls for cls in message._types.values() if cls.__module__.startswith("paceline.")]


def test_the_evaluator_looks_and_does_nothing_else() -> None:
    calls = {(cls, kind, to) for cls in REGISTERED for kind in Kind for a, to in pairs(cls, kind) if a == "evaluator"}
    told = {(cls, kind, to) for cls, kind, to in calls if kind != Kind.CONTROL}
    shown = {(cls, Kind.REPLY, "server") for cls in (PublishedState, StateGone)}
    assert told == {(ReadState, Kind.CALL, "worker"), (ReadState, Kind.CALL, "server"), *shown}
    assert {to for cls, kind, to in calls if kind == Kind.CONTROL and cls is not Capture} == {"coordinator"}
    assert {to for cls, _, to in calls if cls is Capture} == {"server", "worker"}  # for checkpoints
    assert pairs(PublishedState, Kind.REPLY) == {(shown, looks) for looks, shown in pairs(ReadState, Kind.CALL)}


def test_the_coordinator_looks_at_servers_and_a_server_at_everybody() -> None:
    looks = pairs(ReadState, Kind.CALL)
    assert {to for looker, to in looks if looker == "coordinator"} == {"server"}
    assert {to for looker, to in looks if looker == "server"} == {"worker", "evaluator", "coordinator", "server"}
