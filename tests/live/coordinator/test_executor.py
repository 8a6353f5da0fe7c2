"""Decisions are carried out in their order, each by the party that it concerns."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.decisions import (
    CloseConnection,
    CoordinatorDecision,
    NotifyWorkerLeft,
    SendMessage,
    SnapshotOrder,
    StartTimer,
    Timer,
    WriteRecord,
)
from paceline.core.coordination.party import worker
from paceline.core.trace import Ended
from paceline.live.coordinator.executor import DecisionExecutor
from tests.live.node_fixture import nothing

W0, W1 = worker(0), worker(1)


class Everything:
    """Transport, node, listener and snapshots in one: notes which of their methods was called with what."""

    def __init__(self) -> None:
        self.called: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **_: self.called.append((name, arguments))


@pytest.mark.parametrize("actions", [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0)])
def test_actions_are_carried_out_in_the_order_in_which_they_were_decided(actions: tuple[int, ...]) -> None:
    all_of_them = [
        (WriteRecord(Ended(at=1.0, reason="r")), "recorded"),
        (SendMessage((W0,), control.Exit()), "send"),
        (NotifyWorkerLeft(1), "gone"),
        (SnapshotOrder.HOLD, "hold"),
        (CloseConnection(W1, 0, "why"), "drop"),
    ]
    world: Any = Everything()
    executor = DecisionExecutor(world, world, world, world, on_timer=nothing, on_clock=nothing)
    executor.carry_out(CoordinatorDecision(tuple(all_of_them[n][0] for n in actions)))  # type: ignore[misc]
    assert [name for name, _ in world.called] == [all_of_them[n][1] for n in actions]


def test_a_timer_says_by_name_what_is_to_be_looked_at() -> None:
    world: Any = Everything()
    rung: list[Any] = []
    executor = DecisionExecutor(world, world, world, None, on_timer=lambda *which: rung.append(which), on_clock=nothing)
    executor.carry_out(CoordinatorDecision((StartTimer(3.0, Timer.SERVERS_BACK, 7),)))
    ((name, (seconds, ring)),) = world.called
    ring()
    assert (name, seconds, rung) == ("call_later", 3.0, [(Timer.SERVERS_BACK, 7)])
