"""What a simulated worker does when it hears that lost servers are back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from paceline.core.coordination import party as parties
from paceline.sim.faults.servers.server_recovery import Servers


def server(incarnation: int) -> Any:
    return SimpleNamespace(name="server 0", me=0, incarnation=incarnation, process=("server 0", incarnation))


class Stage(Servers):
    """Worker 1; server 0 was replaced twice."""

    def __init__(self) -> None:
        self.w1: Any = SimpleNamespace(name="worker 1", process=("worker 1", 0))
        self.dead, self.between, self.present = server(0), server(1), server(2)
        self.happened: list[Any] = []
        self._all: Any = {
            party.process: SimpleNamespace(party=party, shard=0) for party in (self.dead, self.between, self.present)
        }
        self.sim: Any = SimpleNamespace(world=SimpleNamespace(servers=[self.present]))
        self.streams: Any = SimpleNamespace(fence=lambda party, dead: self.happened.append(("fenced", dead)))
        self.connections: Any = SimpleNamespace(is_called=lambda party, new: self.happened.append(("called", new)))
        self._members: Any = SimpleNamespace(
            calls=SimpleNamespace(sends_again=lambda party, servers: self.happened.append(("sent again", servers)))
        )


def test_calls_are_sent_again_when_nothing_of_the_lost_ones_can_come_any_more() -> None:
    stage = Stage()
    stage._repeats_calls(stage.w1, [0])
    assert stage.happened == [
        ("fenced", stage.dead),
        ("fenced", stage.between),
        ("called", stage.present),
        ("sent again", [parties.server(0)]),
    ]
