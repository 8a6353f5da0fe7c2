"""What others say is checked where it arrives, and its sender pays for it: nobody else does."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from paceline.core.adaptive.regrouping import Move
from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import COORDINATOR, Party, server, worker
from paceline.core.paramserver.gated_server import Push
from paceline.core.sharding import lay_out
from paceline.live.node.hosted_slice import Declined
from paceline.live.node.message_checks import STRIKES, MessageChecks
from paceline.live.protocol.transport import Envelope, Kind

LAYOUT = lay_out(100, 1, 4)


PLAN = control.Plan(
    workers=4,
    servers=1,
    length=100,
    layout=LAYOUT,
    seconds_per_step=(),
    optimizer="",
    samples=3000,
    contribution=32,
    epoch_samples=1000,
)


class Scene:
    """A server that is told things."""

    def __init__(self) -> None:
        self.message_checks = MessageChecks(server(0))
        self.message_checks.planned(PLAN)
        self.expelled: list[tuple[int, str]] = []
        self.message_checks.report_to(
            expel=lambda rank, why: self.expelled.append((rank, why)), on_strike=lambda src, why, strike: None
        )
        self.clock = 0

    def push(self, src: Party = worker(3), **claims: Any) -> Any:  # noqa: B008
        """What is taken of a push with these claims; None: nothing."""
        self.clock += 1
        push = Push(**{"g": np.zeros(100, np.float32), "clock": self.clock, "samples": 32, **claims})
        envelope = Envelope(Kind.CALL, push)
        return envelope.message if self.message_checks.admit(src, envelope, 100) else None


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_an_honest_push_is_taken_as_it_is(scene: Scene) -> None:
    assert scene.push(data=((0, 0, 32),)).data == ((0, 0, 32),)
    assert not scene.message_checks.strikes


@pytest.mark.parametrize("claim", [{"samples": 10**9}, {"samples": -5}, {"clock": 2**60}, {"data": ((0, 9, 3),)}])
def test_a_false_claim_is_brought_to_its_bounds_and_the_third_expels(scene: Scene, claim: dict[str, Any]) -> None:
    scene.push()
    for _ in range(STRIKES):
        taken = scene.push(**claim)
        assert taken.clock == scene.clock  # so that its round goes on, on every server
        assert 0 <= taken.samples <= 32
    ((rank, why),) = scene.expelled
    assert rank == 3
    assert "false claims: 3 messages beyond their bounds" in why
    assert next(iter(claim)) in why


def test_what_has_no_nearest_message_is_dropped_and_expels_at_once(scene: Scene) -> None:
    assert scene.push(g=np.zeros(3, np.float32)) is None
    assert [rank for rank, _ in scene.expelled] == [3]
    other = Move(g=np.zeros(100, np.float32), clock=1, samples=1, group=(0, 77), number=1)
    assert not scene.message_checks.admit(worker(2), Envelope(Kind.CALL, other), 100)
    assert [rank for rank, _ in scene.expelled] == [3, 2]


def test_an_answer_that_cannot_be_is_no_answer(scene: Scene) -> None:
    from paceline.core.local.elastic_averaging import Replica

    answer = Envelope(Kind.REPLY, Replica(x=np.zeros(3, np.float32), clock=1, samples=1))
    assert scene.message_checks.admit(worker(1), answer, 100)
    assert answer.message == Declined()


def test_nobody_is_expelled_for_what_another_one_says(scene: Scene) -> None:
    for _ in range(5):
        scene.push(samples=-1)
        scene.push(server(1), samples=-1)
        scene.clock -= 1
    assert {rank for rank, _ in scene.expelled} == {3}
    assert scene.message_checks.strikes[worker(0)] == 0


def test_the_coordinator_is_believed(scene: Scene) -> None:
    assert scene.push(COORDINATOR, samples=-1).samples == -1


def test_clocks_begin_with_1_or_where_the_others_are_and_anywhere_after_servers_went_back(scene: Scene) -> None:
    assert scene.push(worker(2), clock=4).clock == 1
    assert scene.message_checks.strikes[worker(2)] == 1
    assert scene.push(clock=1).clock == 1
    scene.message_checks.came(3)
    assert scene.push(clock=3).clock == 3
    scene.message_checks.came(3)
    assert scene.push(clock=90).clock == 3, "where its incarnation before was"
    assert scene.message_checks.strikes[worker(3)] == 1
    scene.message_checks.begin_server_view()
    assert scene.push(clock=89).clock == 89
    assert scene.message_checks.strikes[worker(3)] == 1


@pytest.mark.parametrize("late", [False, True])
def test_who_does_not_know_how_a_run_began_takes_any_first_clock(late: bool) -> None:
    scene = Scene()
    scene.message_checks.planned(PLAN if late else dataclasses.replace(PLAN, resumed=True), late=late)
    assert scene.push(clock=40).clock == 40
    assert not scene.message_checks.strikes


def test_numbers_that_are_none_are_no_progress() -> None:
    zero = dict.fromkeys(("steps", "samples", "exchanges", "bytes_up", "bytes_down"), 0)
    seconds = {f"seconds_{name}": 0.0 for name in ("computing", "waiting", "communicating")}
    progress = control.Progress(**zero, **seconds)
    progress.__class__.samples.__set__(progress, 10**12)  # type: ignore[attr-defined]
    progress.__class__.seconds_hidden.__set__(progress, math.inf)  # type: ignore[attr-defined]
    admission = MessageChecks(COORDINATOR)
    admission.planned(PLAN)
    envelope = Envelope(Kind.CONTROL, progress)
    assert admission.admit(worker(1), envelope)
    assert envelope.message.samples <= 1000 * 11 + 32 * 4
    assert math.isfinite(envelope.message.seconds_hidden)
