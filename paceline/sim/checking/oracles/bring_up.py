"""Checks how a run is brought up: in order, by all that begin with it, and by nobody else.

It hears what reaches the parties (Roster, Plan, Go), when they have taken the plan up, and who fails. It does not read
the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from paceline.core.coordination.lifecycle import WAIT_SECONDS

Process = tuple[str, int]
"""A party's name and its incarnation."""
BEFORE_TRAINING = ("Roster", "Plan", "Go")
"""What a party hears that a run begins with, once each and in this order."""
HANGS = ("Hello", "Ready", "Prepared", "Saved")
"""What a party may never say though it lives, and for which a run waits."""
TOO_LONG = "waited "
"""How a run begins to say that a phase took too long."""


@dataclass(frozen=True)
class Starts:
    """Says when the processes of a run start, and which of them end before it trains.

    at_s    virtual seconds after which a party says Hello, by its name
    late    ranks of workers that the run does not wait for; they may come before it trains, too
    dies    names, and when their processes end
    hangs   the name of one that lives and never does something, of `HANGS`; None: all do
    evaluator_at_s    the same of the evaluator; None for a run without one
    evaluator_dies_s  when its process of the moment ends
    """

    at_s: Mapping[str, float] = field(default_factory=dict)
    late: tuple[int, ...] = ()
    dies: tuple[tuple[str, float], ...] = ()
    hangs: tuple[str, str] | None = None
    evaluator_at_s: float | None = None
    evaluator_dies_s: tuple[float, ...] = ()


class BringUpOracle:
    """Notes what the parties of one run hear before it trains.

    beginning: the names of those that it begins with. hangs: the name of one that never answers, or "".
    """

    def __init__(self, broken: Callable[[str], AssertionError], beginning: Collection[str], hangs: str = "") -> None:
        self._broken, self._beginning, self._hangs = broken, sorted(beginning), hangs
        self._told: dict[str, list[str]] = {name: [] for name in beginning}
        self._taken_up: set[str] = set()
        self._gone: set[str] = set()
        self._unheard: set[Process] = set()
        self.began = False

    def came(self, process: Process) -> None:
        """Notes that the coordinator has the Hello of a process that the run does not wait for."""
        self._unheard.add(process)

    def heard(self, process: Process) -> None:
        """Notes that anything of the coordinator has reached a process."""
        self._unheard.discard(process)

    def over(self, living: Collection[Process]) -> None:
        """Takes the end of the run: no living process has said Hello in vain."""
        if unheard := sorted(self._unheard & set(living)):
            raise self._broken(f"{unheard[0][0]} has said Hello, and has never heard of the coordinator")

    def newcomer_told(self, name: str, what: str) -> None:
        """Notes that a process was told something that comes after those that the run begins with."""
        if not self.began:
            raise self._broken(f"{name} is told {what}, and the run that it is to join has not begun")

    def told(self, name: str, what: str) -> None:
        """Notes that a party that the run begins with was told something of the course of the run."""
        told = self._told[name]
        if what == "Finish" and len(told) < len(BEFORE_TRAINING):
            raise self._broken(f"{name} is told Finish, and has been told {told} before")
        if what not in BEFORE_TRAINING:
            return
        if len(told) == len(BEFORE_TRAINING) or BEFORE_TRAINING[len(told)] != what:
            raise self._broken(f"{name} is told {what} after {told}")
        told.append(what)
        if missing := [other for other in self._waits_for(name, what) if other not in self._taken_up]:
            raise self._broken(f"{name} is told {what}, and {missing[0]} has not taken up its plan")

    def _waits_for(self, name: str, what: str) -> list[str]:
        """Returns who must have taken up the plan before `name` is told that. Nobody waits for the evaluator."""
        if what == "Go":
            return [other for other in self._beginning if other != "evaluator"]
        servers = what == "Plan" and not name.startswith("server")
        return [other for other in self._beginning if servers and other.startswith("server")]

    def took_up(self, name: str) -> None:
        """Notes that a party has taken up its plan."""
        self._taken_up.add(name)

    def gone(self, name: str) -> None:
        """Notes that the connection to a party has ended."""
        self._gone.add(name)

    def begins(self) -> None:
        """Notes that the coordinator begins training. Every party that it begins with must live to its knowledge."""
        self.began = True

    def failed(self, cause: str, dead: Collection[str], now: float) -> None:
        """Takes the end of a run that fails. Before it has trained somebody must have failed; after that it may not be
        the evaluator, for which nobody waits. Only one that hangs takes too long, and a phase has WAIT_SECONDS.

        dead: whose processes have ended.
        """
        too_long = cause.startswith(TOO_LONG)
        if too_long and not (self._hangs and self._hangs in cause):
            raise self._broken(f"a phase takes too long, though nobody hangs: {cause}")
        if too_long and now <= WAIT_SECONDS:
            raise self._broken(f"after {now:g} s a phase has taken too long: {cause}")
        if self.began and "evaluator" in cause:
            raise self._broken(f"the run fails though nobody needs the evaluator: {cause}")
        if not self.began and not too_long and not any(name in cause for name in {*self._gone, *dead}):
            raise self._broken(f"the run fails before it trains, though nobody has failed: {cause}")
