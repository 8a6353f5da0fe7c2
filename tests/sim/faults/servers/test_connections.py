"""To which process a simulated worker is connected while a server is replaced."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paceline.sim.faults.servers.connections import ServerConnections


def server(incarnation: int) -> Any:
    return SimpleNamespace(name="server 0", me=0, incarnation=incarnation, process=("server 0", incarnation))


class Stage:
    """Worker 1 and a newcomer, worker 2; server 0 was replaced twice."""

    def __init__(self) -> None:
        self.w1: Any = SimpleNamespace(name="worker 1", process=("worker 1", 0))
        self.newcomer: Any = SimpleNamespace(name="worker 2", process=("worker 2", 3))
        self.dead, self.between, self.present = server(0), server(1), server(2)
        self.happened: list[Any] = []
        self.world: Any = SimpleNamespace(workers=[self.w1], servers=[self.dead])
        sim: Any = self
        self.calls: Any = SimpleNamespace(lost=lambda party, gone: self.happened.append(("lost", gone)))
        self.connections = ServerConnections(sim, sim, lambda party, new: self.happened.append(("before", new)))
        for successor in (self.between, self.present):
            self.connections.has_successor(self.world.servers[0])
            self.world.servers = [successor]

    def of(self, party: Any) -> Any:
        return self.connections.of(party, self.world.servers[0])


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_worker_is_connected_to_the_lost_server_until_a_successor_calls(stage: Stage) -> None:
    assert stage.of(stage.w1) is stage.dead
    assert stage.of(stage.newcomer) is stage.present, "it has called the one that is there"
    stage.connections.is_called(stage.w1, stage.between)
    assert stage.of(stage.w1) is stage.between
    assert stage.happened == [("before", stage.between), ("lost", stage.dead)]
    stage.connections.is_called(stage.w1, stage.present)
    assert stage.of(stage.w1) is stage.present
    stage.happened.clear()
    stage.connections.is_called(stage.w1, stage.between)
    assert (stage.of(stage.w1), stage.happened) == (stage.present, []), "that call came late"


def test_one_that_is_called_by_the_last_of_them_hears_of_one_loss(stage: Stage) -> None:
    stage.connections.is_called(stage.w1, stage.present)
    stage.connections.is_called(stage.w1, stage.present)
    assert stage.happened == [("before", stage.present), ("lost", stage.dead)]


def test_what_was_known_of_processes_that_are_gone_is_forgotten(stage: Stage) -> None:
    stage.world.workers = [stage.newcomer]
    stage.connections.has_successor(stage.present)
    assert stage.of(stage.newcomer) is stage.present
    assert list(stage.connections._peers) == [("worker 2", 3)]
