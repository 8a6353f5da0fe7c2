"""From whom a worker that comes late takes its place."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import COORDINATOR, worker
from paceline.core.errors import PeerLost
from paceline.core.local.push_sum import Holder
from paceline.core.paramserver.gated_worker import ClockedWorker
from paceline.core.role import Role, RoleContext
from paceline.core.scheme import make
from paceline.core.sharding import NOWHERE
from paceline.live.control.session import Session
from paceline.live.net.inprocess_transport import Hub
from paceline.live.node.node import Node
from paceline.live.protocol.transport import Envelope, Kind
from paceline.live.state.late_join import come_late
from tests.live.fakes import NumpyMemory


class Alone:
    """A session in which all who trained are lost, and the servers have the model."""

    departed = frozenset({1, 2})

    def __init__(self) -> None:
        self.node = Mock()
        self.node.me.index = 0
        self.node.read_state.return_value = "the weights of the servers"


def role_of(box: type[Role]) -> Any:
    def role_with(w: Any) -> Role:
        role = box.__new__(box)
        role.w = w
        return role

    return role_with


def test_where_all_who_trained_are_lost_the_servers_give_a_newcomer_its_place() -> None:
    role = come_late(Alone(), "servers", 3, role_of(ClockedWorker))  # type: ignore[arg-type]
    assert (role.w, role.clock) == ("the weights of the servers", 0)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("model_of", "box"), [("servers", Role), ("any worker", ClockedWorker)])
def test_where_servers_do_not_know_all_of_it_the_run_cannot_go_on(model_of: Any, box: type[Role]) -> None:
    with pytest.raises(PeerLost, match="no worker is left"):
        come_late(Alone(), model_of, 3, role_of(box))  # type: ignore[arg-type]


def test_a_newcomer_is_not_away_itself_and_knows_who_came_before_it_had_a_role() -> None:
    """A gossip worker that reckons others, or itself, away gives its mass to them and gets none back."""
    transport = Hub().transport(worker(0))
    node = Node(transport, NumpyMemory())
    session = Session(transport, node)
    roster = control.Roster(addresses={}, hosts={}, incarnations=(1, 1, 0), gone=(0, 1), lost=(0, 1))
    came = control.WorkerJoined(rank=1, incarnation=1, view=3, address="hub:again", host="there")
    node.after_replicated = lambda act: None  # there is no coordinator to be told
    for message in (roster, came):
        session.handlers.deliver(COORDINATOR, Envelope(Kind.CONTROL, message))
    session.connect(())
    place = RoleContext(me=0, workers=(0, 1, 2), w=0.0, update=lambda w, g, samples: w)
    role = Holder(make("sgp", {}), place)
    role.load_join_state({"away": [0, 1]})  # worker 2 had not heard of worker 1 yet when it showed this
    session.enter(role, NOWHERE)
    assert role.away == set()
    assert session.departed == set()
