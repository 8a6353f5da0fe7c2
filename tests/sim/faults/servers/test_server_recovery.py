"""Which calls a simulated worker repeats at the server that takes the place of a lost one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from paceline.core.message import message
from paceline.sim.faults.servers.server_recovery import Servers


@message("tests.Repeated")
class Repeated:
    """A message without vectors."""


def server(incarnation: int) -> Any:
    return SimpleNamespace(name="server 0", incarnation=incarnation)


class Stage:
    """Worker 1, and a server that was replaced twice."""

    def __init__(self, *, stopped: bool = False) -> None:
        self.party: Any = SimpleNamespace(name="worker 1")
        self.dead, self.between, self.present = server(0), server(1), server(2)
        self.open: dict[int, list[Any]] = {}  # by incarnation of the server: calls
        self.sent: list[tuple[Any, Any]] = []
        self.fenced: list[Any] = []
        self.streams = self
        self.sim = SimpleNamespace(world=SimpleNamespace(servers=[self.present]))
        self._members = SimpleNamespace(stopped=lambda party: stopped)

    def _former(self, servers: Any) -> list[Any]:
        return [SimpleNamespace(party=dead) for dead in (self.dead, self.between)]

    def unanswered(self, party: Any, there: Any) -> list[tuple[int, str, Any, Any]]:
        return [(0, "asked", call, Repeated()) for call in self.open.get(there.incarnation, ())]

    def fence(self, party: Any, dead: Any) -> None:
        self.fenced.append(dead)

    def send(self, party: Any, there: Any, nbytes: int, act: Any, args: Any) -> None:
        assert (act, args[0], nbytes) == ("asked", there, 0)
        self.sent.append((there, args[1]))

    def repeats(self) -> None:
        Servers._repeats_calls(self, self.party, [0])  # type: ignore[arg-type]


def test_what_no_incarnation_has_answered_is_asked_of_the_present_one_in_its_order() -> None:
    stage = Stage()
    stage.open = {0: ["push 1"], 1: ["push 2"], 2: ["push 3"]}
    stage.repeats()
    assert stage.sent == [(stage.present, "push 1"), (stage.present, "push 2"), (stage.present, "push 3")]
    assert stage.fenced == [stage.dead, stage.between], "what they still answer counts no more"


def test_one_that_was_told_to_stop_repeats_nothing_and_takes_nothing_of_the_lost_ones() -> None:
    stage = Stage(stopped=True)
    stage.open = {0: ["push 1"]}
    stage.repeats()
    assert (stage.sent, stage.fenced) == ([], [stage.dead, stage.between])
