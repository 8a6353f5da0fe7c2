"""A plan that is carried out by hand: a clock, and what the run says."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

from paceline.chaos.plan import PlannedFault
from paceline.chaos.runner import FaultRunner
from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.core.trace import Applied, MemberChange

PARTIES = [party.worker(0), party.worker(1), party.worker(2), party.server(0)]


class Targets:
    def __init__(self) -> None:
        self.done: list[str] = []

    def signal(self, who: Party, number: signal.Signals) -> None:
        self.done.append(f"{number.name} {who}")

    def cut_off(self, who: Party) -> None:
        self.done.append(f"cut {who}")

    def let_through(self, who: Party) -> None:
        self.done.append(f"free {who}")


class Play:
    """A fault runner whose clock is set; it looks at it whenever it hears of something."""

    def __init__(self, *faults: PlannedFault) -> None:
        self.targets, self.lines, self.now = Targets(), [], 0.0  # type: ignore[var-annotated]
        self.calm: list[float] = []
        self.runner = FaultRunner(faults, PARTIES, self.targets, self.lines.append)
        self.runner.start(lambda: self.now, lambda: self.calm.append(self.now))
        self.runner.heard(Applied(at=0.0, shard=0, ranks=(0,), version=1, staleness=0, weight=1.0, samples=1))

    def at(self, now: float, until: Callable[[], object]) -> None:
        self.now = now
        self.says("nobody", "joined")  # a look at the clock
        deadline = time.monotonic() + 60.0
        while not until() and time.monotonic() < deadline:
            threading.Event().wait(0.002)
        assert until(), (self.targets.done, self.lines)

    def calm_is_due(self) -> bool:
        return any(act == self.runner._calm for _, _, act in list(self.runner._agenda))

    def says(self, who: str, event: str) -> None:
        name = "evaluator" if who == "nobody" else who
        self.runner.heard(MemberChange(at=self.now, party=name, event=event))


def fault(number: int, at_s: float, kind: str, whom: Party, for_s: float = 0.0) -> PlannedFault:
    return PlannedFault(number=number, at_s=at_s, kind=kind, whom=whom, for_s=for_s)


def test_a_kill_is_told_once_the_party_is_back() -> None:
    play = Play(fault(1, 1.0, "kill", party.worker(1)), fault(2, 2.0, "server", party.server(0)))
    play.at(1.0, lambda: play.targets.done == ["SIGKILL worker 1"])
    play.now = 1.25
    play.says("worker 1", "lost")
    play.now = 1.5
    play.says("worker 1", "returned")
    play.at(2.0, lambda: play.targets.done[1:] == ["SIGKILL server 0"])
    play.runner.end()
    assert play.lines == [
        "    1.0 s  kill worker 1: declared failed after 0.25 s, back after 0.50 s",
        "    2.0 s  kill server 0: not heard of when the run ended",
    ]


def test_a_while_after_all_faults_have_settled_it_is_calm() -> None:
    play = Play(fault(1, 1.0, "kill", party.worker(1)), fault(2, 2.0, "stop", party.worker(0), 1.0))
    play.at(1.0, lambda: play.targets.done == ["SIGKILL worker 1"])
    play.at(2.0, lambda: play.targets.done[1:] == ["SIGSTOP worker 0"])
    play.at(3.0, lambda: play.targets.done[2:] == ["SIGCONT worker 0"])
    play.at(9.0, lambda: len(play.lines) == 1)  # the other is not back yet
    assert play.calm == []
    play.says("worker 1", "lost")
    play.says("worker 1", "returned")
    play.at(9.5, lambda: play.calm_is_due())
    assert len(play.lines) == 2
    play.at(20.0, lambda: play.calm == [20.0])
    play.runner.end()


def test_who_is_stopped_or_cut_off_goes_on_later_and_one_who_is_away_is_not_touched() -> None:
    play = Play(
        fault(1, 1.0, "stop", party.worker(0), 2.0),
        fault(2, 2.0, "partition", party.worker(0), 2.0),
        fault(3, 2.5, "kill", party.worker(2)),
    )
    play.at(1.0, lambda: play.targets.done == ["SIGSTOP worker 0"])
    play.at(2.0, lambda: play.targets.done[1:] == ["cut worker 1"])  # worker 0 stands still
    play.at(3.0, lambda: play.targets.done[2:] == ["SIGCONT worker 0"])  # and nobody could be killed, but one
    play.at(3.2, lambda: play.targets.done[3:] == ["SIGKILL worker 2"])
    play.at(4.0, lambda: play.targets.done[4:] == ["free worker 1"])
    play.at(6.0, lambda: len(play.lines) == 2)
    play.runner.end()
    assert play.lines[0] == "    1.0 s  stop worker 0 for 2.0 s: it went on"
    assert play.lines[1] == "    2.0 s  partition worker 0 for 2.0 s (worker 1 instead): it went on"


def test_who_takes_the_place_of_one_that_was_given_up_is_not_held() -> None:
    play = Play(fault(1, 1.0, "partition", party.server(0), 9.0))
    play.at(1.0, lambda: play.targets.done == ["cut server 0"])
    play.now = 3.0
    play.says("server 0", "lost")
    play.at(3.1, lambda: play.targets.done[1:] == ["free server 0"])
    play.now = 4.0
    play.says("server 0", "replaced")
    play.at(
        10.0,
        lambda: (
            play.lines == ["    1.0 s  partition server 0 for 9.0 s: declared failed after 2.00 s, back after 3.00 s"]
        ),
    )
    play.runner.end()
    assert play.targets.done == ["cut server 0", "free server 0"]


def test_whoever_is_held_is_let_go_when_the_run_ends() -> None:
    play = Play(fault(1, 1.0, "stop", party.worker(0), 9.0))
    play.at(1.0, lambda: play.targets.done == ["SIGSTOP worker 0"])
    play.runner.end()
    assert play.targets.done == ["SIGSTOP worker 0", "SIGCONT worker 0"]


def test_a_loss_that_nobody_caused_is_noted() -> None:
    play = Play(fault(1, 1.0, "kill", party.worker(0)))
    play.says("worker 2", "lost")
    play.at(1.0, lambda: play.targets.done == ["SIGKILL worker 0"])
    play.runner.end()
    assert [loss.party for loss in play.runner.unasked] == ["worker 2"]
