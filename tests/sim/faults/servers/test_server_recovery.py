"""To which process a simulated worker is connected while a server is replaced, and what it sends again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paceline.core.coordination import party as parties
from paceline.sim.faults.servers.server_recovery import Servers


def server(incarnation: int) -> Any:
    return SimpleNamespace(name="server 0", me=0, incarnation=incarnation, process=("server 0", incarnation))


class Stage(Servers):
    """Worker 1 and a newcomer, worker 2; server 0 was replaced twice."""

    def __init__(self) -> None:
        self.w1: Any = SimpleNamespace(name="worker 1", process=("worker 1", 0))
        self.newcomer: Any = SimpleNamespace(name="worker 2", process=("worker 2", 3))
        self.dead, self.between, self.present = server(0), server(1), server(2)
        self.happened: list[Any] = []
        self._connected = {}
        self._all: Any = {
            party.process: SimpleNamespace(party=party, shard=0) for party in (self.dead, self.between, self.present)
        }
        self.world: Any = SimpleNamespace(workers=[self.w1], servers=[self.dead])
        self.sim: Any = self
        self.streams: Any = SimpleNamespace(fence=lambda party, dead: self.happened.append(("fenced", dead)))
        self._members: Any = SimpleNamespace(
            calls=SimpleNamespace(
                lost=lambda party, gone: self.happened.append(("lost", gone)),
                sends_again=lambda party, servers: self.happened.append(("sent again", servers)),
            )
        )
        for successor in (self.between, self.present):
            self._stay_connected(self.world.servers[0])
            self.world.servers = [successor]

    def of(self, party: Any) -> Any:
        return self.connection(party, self.world.servers[0])


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_worker_is_connected_to_the_lost_server_until_a_successor_calls(stage: Stage) -> None:
    assert stage.of(stage.w1) is stage.dead
    assert stage.of(stage.newcomer) is stage.present, "it has called the one that is there"
    stage._meets_worker(stage.w1, stage.between)
    assert stage.of(stage.w1) is stage.between
    assert stage.happened == [("fenced", stage.dead), ("lost", stage.dead)], "what it answers counts no more"
    stage._meets_worker(stage.w1, stage.present)
    assert stage.of(stage.w1) is stage.present
    stage.happened.clear()
    stage._meets_worker(stage.w1, stage.between)
    assert (stage.of(stage.w1), stage.happened) == (stage.present, []), "that call came late"


def test_when_all_servers_are_back_calls_go_to_the_present_ones_behind_the_loss(stage: Stage) -> None:
    stage._repeats_calls(stage.w1, [0])
    assert stage.of(stage.w1) is stage.present
    assert stage.happened[-2:] == [("lost", stage.dead), ("sent again", [parties.server(0)])]
    assert ("fenced", stage.between) in stage.happened
    stage.happened.clear()
    stage._meets_worker(stage.w1, stage.present)
    assert stage.happened == [], "its own call came later than that, and is no loss"


def test_what_was_known_of_processes_that_are_gone_is_forgotten(stage: Stage) -> None:
    stage.world.workers = [stage.newcomer]
    stage._stay_connected(stage.present)
    assert list(stage._connected) == [(("worker 2", 3), 0)]
