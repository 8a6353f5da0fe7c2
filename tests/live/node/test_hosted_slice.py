"""A server of several slices: a box for each, and what workers see of them is one vector."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.core.coordination import party
from paceline.core.coordination.party import server, worker
from paceline.core.effects import SERVERS, Call
from paceline.core.errors import ProtocolError
from paceline.core.sharding import lay_out
from paceline.live.node.hosted_slice import ServedSlice
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.node_fixture import TEN, WORK, Answerer, Ask, Asker, Stage, echo, nothing


def sliced(stage: Stage, answer: Any = echo) -> tuple[list[Answerer], Any]:
    """Two servers of two slices each; the boxes in the order of the vector."""
    layout = lay_out(10, 2, 3)
    roles = [Answerer(answer) for _ in layout.slices]
    for shard in range(2):
        stage.node(server(shard)).host([ServedSlice(3, roles[number]) for number in layout.of(shard)])
    return roles, layout


def test_every_slice_of_a_server_has_a_box_of_its_own(stage: Stage) -> None:
    roles, layout = sliced(stage)
    node = stage.node(worker(0))
    mine = Asker(Call(SERVERS, Ask(v=TEN, n=4)), WORK)
    node.place(mine, layout)
    node.advance()
    assert mine.results[0].v.tolist() == (TEN * 2).tolist()
    assert [role.came[0][1].v.tolist() for role in roles] == [[0, 1], [2, 3, 4], [5, 6], [7, 8, 9]]


def test_the_first_slices_of_all_servers_leave_first(stage: Stage) -> None:
    order: list[float] = []
    _, layout = sliced(stage, nothing)
    node = stage.node(worker(0))
    node.place(None, layout)
    node.channel.transport.send = lambda to, envelope: order.append(envelope.message.v[0])  # type: ignore[method-assign]
    node.out.tell(SERVERS, Ask(v=TEN, n=1))
    assert order == [0, 5, 2, 7]


def test_whoever_is_gone_is_gone_for_every_slice(stage: Stage) -> None:
    roles, _ = sliced(stage)
    stage.nodes[server(1)].gone(2)
    assert [role.left for role in roles] == [[], [], [2], [2]]


def test_a_look_at_the_servers_is_put_together_from_their_slices(stage: Stage) -> None:
    roles, layout = sliced(stage)
    for role, part in zip(roles, layout.slices, strict=True):
        role.w = TEN[part]
    node = stage.node(party.EVALUATOR)
    node.place(None, layout)
    assert node.read_state(SERVERS, "weights").tolist() == TEN.tolist()


def test_a_slice_that_a_server_does_not_have_is_a_protocol_error(stage: Stage) -> None:
    sliced(stage)
    with pytest.raises(ProtocolError, match="server 1 is asked for its slice 2 and has 2"):
        stage.nodes[server(1)].deliver(worker(0), Envelope(Kind.TELL, Ask(v=TEN, n=1), slice=2))


def test_a_server_has_no_room_for_more_than_its_longest_slice(stage: Stage) -> None:
    sliced(stage)
    with pytest.raises(ProtocolError, match="worker 0 sends a vector of 4 elements, server 1 expects 3 at most"):
        stage.nodes[server(1)].room_for(worker(0), Kind.CALL, 1, [4])
