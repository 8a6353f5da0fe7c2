"""Waits for messages of the coordinator, and what ends them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import loop_messages
from paceline.core.coordination.party import worker
from paceline.core.errors import PeerLost, ProtocolError, TimedOut
from paceline.live.control.mailbox import SharedTexts
from paceline.live.control.session import Session
from paceline.live.net.inprocess_transport import Hub
from paceline.live.node.node import Node
from paceline.live.protocol.transport import Envelope, Kind
from tests.live.control.scene import Scene
from tests.live.fakes import NumpyMemory, in_background, vector
from tests.live.node_fixture import Answerer, Ask


def test_a_message_out_of_turn_is_a_protocol_error(scene: Scene) -> None:
    scene.session.hello("hub:coordinator", "cpu")
    scene.tell(control.Go())
    with pytest.raises(ProtocolError, match="worker 0 expected Plan, got Go"):
        scene.session.expect(control.Plan)


def test_a_wait_for_the_coordinator_names_what_it_waited_for() -> None:
    transport = Hub().transport(worker(0))
    impatient = Session(transport, Node(transport, NumpyMemory()), timeout_s=0.01)
    with pytest.raises(TimedOut, match="worker 0 waited 0 s for Plan"):
        impatient.expect(control.Plan)
    assert impatient.within(0.0) is None


@pytest.mark.parametrize("wait", ["expect", "serve", "wait_for_finish", "within"])
def test_losing_the_coordinator_ends_every_wait(scene: Scene, wait: str) -> None:
    scene.begin()
    arguments = {"expect": (control.Plan,), "within": (15.0,)}.get(wait, ())
    waiting = in_background(lambda: getattr(scene.session, wait)(*arguments))
    scene.coordinator.close()
    with pytest.raises(PeerLost, match=r"the coordinator is gone \(it left\)"):
        waiting()
    assert scene.session.over.is_set()
    with pytest.raises(PeerLost, match="the coordinator is gone"):
        scene.node.advance()


def test_a_wait_for_exchanges_ends_with_them_or_with_a_message(scene: Scene) -> None:
    scene.begin()
    waiting = in_background(lambda: scene.session.until_exchanges(10))
    scene.tell(control.Total(samples=320, exchanges=9))
    scene.tell(control.Total(samples=384, exchanges=12))
    assert waiting() is None
    assert scene.session.until_exchanges(12) is None  # they are there already
    assert (scene.session.total_exchanges, scene.session.total_samples) == (12, 384)
    waiting = in_background(lambda: scene.session.until_exchanges(100))
    scene.tell(finish := control.Finish(holder=0))
    assert waiting() == finish
    scene.tell(control.Total(samples=0, exchanges=200))  # nobody waits for them any more
    assert scene.session.within(0.05) is None


@pytest.mark.parametrize("wait", ["serve", "wait_for_finish"])
def test_what_goes_wrong_on_the_thread_that_delivers_reaches_the_partys_own(scene: Scene, wait: str) -> None:
    def clumsy(src: int, message: Any) -> Iterator[Any]:
        raise ZeroDivisionError("clumsy")
        yield

    scene.node.place(Answerer(clumsy))
    scene.begin()
    waiting = in_background(getattr(scene.session, wait))
    scene.coordinator.send(worker(0), Envelope(Kind.TELL, Ask(v=vector(1), n=1)))
    with pytest.raises(ZeroDivisionError, match="clumsy"):
        waiting()
    scene.session.tell(control.Failed(cause="clumsy", details=""))  # it can still say so
    assert scene.hears() == control.Failed(cause="clumsy", details="")


def test_an_older_value_does_not_replace_the_one_that_a_worker_has_just_shared() -> None:
    """The coordinator's order counts: what comes before it has sent the worker's own values back is older than they."""

    def arrives(value: str, *, own: bool = False) -> str | None:
        texts.arrived(loop_messages.SharedValue(name="best", value=value, own=own))
        return texts.get("best")

    texts = SharedTexts()
    assert texts.get("best") is None
    assert arrives("1") == "1"
    texts.share("best", "2")
    texts.share("best", "3")
    assert arrives("of another") == "3"
    assert arrives("2", own=True) == "3"
    assert arrives("of another") == "3"
    assert arrives("3", own=True) == "3"
    assert arrives("4") == "4"
