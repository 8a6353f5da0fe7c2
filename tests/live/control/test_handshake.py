"""A party joins a run: it says hello, hears of the others and connects to them."""

from __future__ import annotations

import os

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import COORDINATOR, EVALUATOR, server, worker
from paceline.core.errors import NoCoordinator, PeerLost
from paceline.core.sharding import lay_out
from paceline.live.node.published_state import PublishedState
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.control.scene import Scene
from tests.live.fakes import Recorder, in_background, take, vector

PLAN = control.Plan(workers=1, servers=2, length=10, layout=lay_out(10, 2), seconds_per_step=(), optimizer="")


def test_it_says_hello_and_connects_to_whom_it_is_told(scene: Scene) -> None:
    scene.session.hello("hub:coordinator", "cuda:1")
    hello = scene.hears()
    assert (hello.address, hello.pid, hello.device) == ("hub:worker 0", os.getpid(), "cuda:1")
    scene.tell(control.Roster(addresses={"server 0": "hub:server 0", "server 1": "hub:server 1"}, hosts={}))
    scene.session.connect([server(0), server(1)])
    scene.tell(PLAN)
    assert scene.session.expect(control.Plan) == PLAN


def test_what_is_heard_after_the_roster_is_known_when_a_newcomer_has_made_its_model(scene: Scene) -> None:
    scene.session.hello("hub:coordinator", "cpu")
    roster = control.Roster(
        addresses={"worker 1": "hub:one", "worker 2": "hub:two"}, hosts={}, incarnations=(1, 0, 0), gone=(2,), lost=(2,)
    )
    came = control.WorkerJoined(rank=2, incarnation=3, view=5, address="hub:two again", host="there")
    for message in (roster, control.WorkerLeft(rank=1, lost=True), came):
        scene.session.handlers.deliver(COORDINATOR, Envelope(Kind.CONTROL, message))
    session = scene.session
    session.connect(())
    assert (session.departed, session.lost_ranks, session.late) == ({1}, {1}, True)
    assert (session.directory.addresses["worker 2"], session.directory.incarnations[2], session.host_of(worker(2))) == (
        *("hub:two again", 3),
        "there",
    )


def test_a_newcomer_calls_those_that_are_here_and_those_that_come_with_it(scene: Scene) -> None:
    heard = {rank: Recorder() for rank in (1, 2)}
    for rank, recorder in heard.items():
        scene.hub.transport(worker(rank)).open(recorder)
        scene.heard[worker(rank)] = recorder
    addresses = {f"worker {rank}": f"hub:worker {rank}" for rank in range(5)}
    roster = control.Roster(
        addresses=addresses,
        hosts={},
        incarnations=(1, 0, 1, 1, 0),
        gone=(0, 2, 3, 4),
        lost=(0, 2, 3),
        joining=(0, 2, 3),
    )
    scene.session.hello("hub:coordinator", "cpu")
    scene.session.handlers.deliver(COORDINATOR, Envelope(Kind.CONTROL, roster))
    meeting = in_background(scene.session.meet_workers)
    for rank, recorder in heard.items():  # worker 3 is lost again, and worker 4 has left
        src, envelope = take(recorder.delivered)
        there = scene.hub.find(worker(rank))
        assert there is not None
        there.send(src, Envelope(Kind.REPLY, PublishedState(v=vector()), envelope.id))
    meeting()


def test_a_newcomer_goes_on_without_a_worker_that_was_lost_just_now(scene: Scene) -> None:
    there = scene.hub.transport(worker(2))
    heard = scene.heard[worker(2)] = Recorder()
    there.open(heard)
    addresses = {f"worker {rank}": f"hub:worker {rank}" for rank in range(3)}  # nobody is at that of worker 1
    scene.session.hello("hub:coordinator", "cpu")
    roster = control.Roster(addresses=addresses, hosts={}, incarnations=(1, 0, 0), gone=(0,), lost=(0,), joining=(0,))
    scene.session.handlers.deliver(COORDINATOR, Envelope(Kind.CONTROL, roster))
    meeting = in_background(scene.session.meet_workers)
    src, envelope = take(heard.delivered)
    there.send(src, Envelope(Kind.REPLY, PublishedState(v=vector()), envelope.id))
    meeting()


def test_a_coordinator_that_is_not_there_is_a_lost_peer(scene: Scene) -> None:
    scene.coordinator.close()
    with pytest.raises(NoCoordinator, match="worker 0 cannot reach coordinator.*; if its run is over"):
        scene.session.hello("hub:coordinator", "cpu")


def test_who_comes_late_does_not_need_the_evaluator(scene: Scene) -> None:
    joining = in_background(lambda: scene.session.hello("hub:coordinator", "cpu"))
    assert isinstance(scene.hears(), control.Hello)
    joining()
    addresses = {"evaluator": "hub:nobody", "server 0": "hub:server 0"}
    scene.tell(control.Roster(addresses=addresses, hosts=dict.fromkeys(addresses, "here"), incarnations=(1,)))
    scene.session.connect(())
    assert scene.session.has(EVALUATOR)
    with pytest.raises(PeerLost):
        scene.session.reach_if_there(EVALUATOR)
    scene.session.meet_evaluator()
