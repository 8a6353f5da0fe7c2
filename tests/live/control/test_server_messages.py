"""Servers hear of lost workers, and of learning rates again."""

from __future__ import annotations

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import COORDINATOR, server
from paceline.core.sharding import lay_out
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.control.scene import Scene
from tests.live.fakes import vector
from tests.live.node_fixture import Answerer, Ask, nothing

PLAN = control.Plan(workers=1, servers=2, length=10, layout=lay_out(10, 2), seconds_per_step=(), optimizer="")


def test_a_worker_that_is_gone_is_told_to_the_role_of_a_server(scene: Scene) -> None:
    role = Answerer(nothing)
    scene.node.place(role)
    scene.begin()
    scene.tell(control.WorkerLeft(rank=3))
    scene.tell(PLAN)
    scene.session.expect(control.Plan)
    assert role.left == [3]
    assert scene.session.departed == {3}


@pytest.mark.parametrize("rolled_back", [False, True])
def test_servers_that_go_on_from_an_earlier_state_hear_the_last_learning_rate_again(
    scene: Scene, rolled_back: bool
) -> None:
    scene.begin()
    scene.node.place(Answerer(nothing), PLAN.layout)
    resume = control.Resume(server_view=3 if rolled_back else 0, rolled_back=rolled_back, replaced=(1,))
    scene.session.handlers.deliver(COORDINATOR, Envelope(Kind.CONTROL, resume))  # none told yet
    scene.session.tell_rate(2, control.Rate(lr=0.5))
    scene.session.tell_rate(2, control.Rate(lr=0.25))
    scene.node.out.call("servers", Ask(v=vector(*range(10)), n=1))
    heard = scene.heard[server(1)]
    assert [heard.next()[1] for _ in range(2)] == [control.Rate(lr=0.5), control.Rate(lr=0.25)]
    assert isinstance(heard.next()[1], Ask)
    scene.session.handlers.deliver(COORDINATOR, Envelope(Kind.CONTROL, resume))
    assert heard.next()[1] == control.Rate(lr=0.25), "before anything is asked again"
    if not rolled_back:
        assert isinstance(heard.next()[1], Ask)
