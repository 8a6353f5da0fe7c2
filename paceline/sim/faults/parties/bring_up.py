"""The bring-up of a simulated run: processes start, say Hello, meet, take up the plan, and begin to train at Go.

    told      a worker                                a server
              says Hello when its process starts      the same
    Roster    meets the others, measures; Ready       meets nobody
    Plan      takes it up; Prepared                   the same
    Go        its loop begins                         begins to copy

`paceline.core.coordinator.bring_up` and `paceline.core.parties.lifecycle` decide, for live runs and for these. What is
not simulated: the weights of worker 0, which all have from the beginning, and what a step measures; both take a drawn
time. A run without `StopWish.starts` begins when all that is over.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import EVALUATOR, Party
from paceline.core.role import Role, RoleContext
from paceline.sim.checking.oracles.bring_up import BringUpOracle, Starts
from paceline.sim.kernel.processes import SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.faulted_driver import FaultedDriver, LossyFaultedMembers

MODEL = control.Ready(length=0, fingerprint="", seconds_per_step=0.0, optimizer="")
"""What every simulated worker reports of its model: all train the same."""
TAKES_MAX_S = 1.0
"""The longest time that a party takes to meet the others, or to take up its plan."""


def hello_of(incarnation: int) -> control.Hello:
    """Returns the first message of a process."""
    return control.Hello(address="", pid=0, host="", device="", incarnation=incarnation)


class SimulatedEvaluator:
    """Starts the evaluator of a run that is brought up, and starts it again where it is lost. It evaluates nothing.

    party: the process of the moment.
    """

    def __init__(self, sim: FaultedDriver, members: LossyFaultedMembers, starts: Starts) -> None:
        assert starts.evaluator_at_s is not None
        self._sim, self._members = sim, members
        self.party = self._process(0)
        sim.heap.push(starts.evaluator_at_s, self._says_hello, self.party)
        for at in starts.evaluator_dies_s:
            sim.heap.push(at, self._dies)

    def _process(self, incarnation: int) -> SimulatedProcess:
        world = self._sim.world
        place = RoleContext(me=0, workers=world.ranks, w=None, update=lambda w, g, samples: w)
        role = Role(self._sim.scheme, place)
        party = SimulatedProcess("evaluator", role, world.control, 0.0, incarnation=incarnation)
        party.here = False  # it has no part in the scheme
        return party

    def _says_hello(self, party: SimulatedProcess) -> None:
        if party.hears:
            self._members.tell(party, hello_of(party.incarnation))

    def _dies(self) -> None:
        """Ends its process, which is noticed by its silence, or its connection where nobody looks for the silent."""
        self.party.hears = False
        self._members.streams.closed(self.party)
        if not self._members.counts(self.party):  # it has not said Hello, so nobody else misses it
            self._sim.heap.push(self._sim.now + TAKES_MAX_S, self.closes, self.party.incarnation)

    def closes(self, incarnation: int) -> None:
        """Ends a process that the coordinator has lost, and starts the next one, unless nobody needs it any more."""
        if incarnation != self.party.incarnation:
            return
        self.party.hears = False
        self._members.streams.closed(self.party)
        if self._members.ends:
            self._members.ends.gone(self.party)
        if EVALUATOR not in self._members.machine.run.roster.banned:
            self.party = self._process(incarnation + 1)
            self._sim.heap.push(self._sim.now + TAKES_MAX_S, self._says_hello, self.party)


class SimulatedBringUp:
    """Brings the run of `sim` up. `began_s`: when training began; None before."""

    def __init__(self, sim: FaultedDriver, members: LossyFaultedMembers, starts: Starts) -> None:
        assert sim.invariants is not None
        self._sim, self._members, self._starts = sim, members, starts
        self._rng = Random(f"{sim.seed}/bring-up")
        self.began_s: float | None = None
        self._begun: set[tuple[str, int]] = set()  # processes whose loop has begun
        late = [sim.world.workers[rank] for rank in starts.late]
        beginning = [party for party in (*sim.world.workers, *sim.world.servers) if party not in late]
        self._beginning = {party.process for party in beginning}
        self.evaluator = None if starts.evaluator_at_s is None else SimulatedEvaluator(sim, members, starts)
        if self.evaluator:
            self._beginning.add(self.evaluator.party.process)
        self.oracle = BringUpOracle(sim.invariants.broken, [name for name, _ in self._beginning])
        for party in late:
            party.here = party.hears = False
            sim.heap.push(0.0, self._is_absent, party)
        for party in beginning:
            sim.heap.push(starts.at_s[party.name], self._says_hello, party)
            for name, at in starts.dies:
                if name == party.name:
                    sim.heap.push(at, self._dies, party)
        members.watch_connections(lambda: self.began_s is not None, lambda party: None)

    @property
    def evaluators(self) -> tuple[SimulatedProcess, ...]:
        """Returns the evaluator's process of the moment, if the run has one."""
        return (self.evaluator.party,) if self.evaluator else ()

    @property
    def dead(self) -> list[str]:
        """Returns whose processes do not run."""
        parties = (*self._sim.world.workers, *self._sim.world.servers, *self.evaluators)
        return [party.name for party in parties if not party.hears]

    @property
    def now(self) -> float:
        """Returns the seconds since training began; 0 before."""
        return 0.0 if self.began_s is None else self._sim.now - self.began_s

    def is_connected(self, party: SimulatedProcess) -> bool:
        """Returns True for a process that the run begins with, before it trains."""
        return party.process in self._beginning

    def rests(self, party: SimulatedProcess) -> bool:
        """Returns True if the loop of that process has not begun."""
        return party.process in self._beginning and party.process not in self._begun

    # ---- processes ---------------------------------------------------------------------------------------
    def _is_absent(self, party: SimulatedProcess) -> None:
        """Ends a worker that comes late; its process starts when that is drawn."""
        self._sim.incarnations[party.me].end()
        self._sim.heap.push(self._starts.at_s[party.name], self._sim.join, party.me)

    def _says_hello(self, party: SimulatedProcess) -> None:
        if self._is_there(self._says_hello, party):
            self._members.tell(party, hello_of(party.incarnation))

    def _dies(self, party: SimulatedProcess) -> None:
        """Ends the process of a party: before training, whatever the run survives then."""
        if party.kind == "worker":
            self._sim.crash(party.me)
        elif self.began_s is None and self._members.servers:
            self._members.servers.dies(party.me)

    def lost(self, who: Party) -> bool:
        """Notes that the connection to `who` has broken; returns True if the run does not train yet."""
        self.oracle.gone(str(who))
        return self.began_s is None

    def over(self) -> None:
        """Checks, when all is over, that nobody who lives has said Hello in vain."""
        self.oracle.over(self._members.living)

    # ---- what parties are told ---------------------------------------------------------------------------
    def begins_training(self) -> None:
        """Starts the clock of the run."""
        self.began_s = self._sim.now
        self.oracle.begins()

    def own_thread(self, party: SimulatedProcess, message: Any) -> bool:
        """Does at a party what takes its time; returns False for what is no matter of the bring-up."""
        what = type(message).__name__
        if party.process not in self._beginning:
            self.oracle.newcomer_told(party.name, what)
            return False
        self.oracle.told(party.name, what)
        match message:
            case control.Roster():
                self._later(self._is_ready, party)
            case control.Plan():
                self._later(self._has_taken_up, party)
            case control.Go() if party.kind == "worker":
                self._begun.add(party.process)
                self._sim.heap.push(self._sim.now, self._sim.resume, self._sim.incarnations[party.me])
            case _:
                return False
        return True

    def _later(self, act: Callable[[SimulatedProcess], None], party: SimulatedProcess) -> None:
        self._sim.heap.push(self._sim.now + self._rng.random() * TAKES_MAX_S, act, party)

    def _is_there(self, act: Callable[[SimulatedProcess], None], party: SimulatedProcess) -> bool:
        """Returns True if that process lives; a server that comes back as it was does `act` later."""
        if not party.hears and party.kind == "server" and not self._members.servers:
            self._sim.heap.push(self._sim.now + TAKES_MAX_S, act, party)
        return party.hears

    def _is_ready(self, party: SimulatedProcess) -> None:
        if party.kind == "worker" and self._is_there(self._is_ready, party):
            self._members.tell(party, MODEL)

    def _has_taken_up(self, party: SimulatedProcess) -> None:
        """Makes the role count with those that are there, as its first message must find it."""
        if not self._is_there(self._has_taken_up, party):
            return
        self.oracle.took_up(party.name)
        for rank in sorted(self._members.orders.known(party).departed):
            for role in self._members.orders.roles(party):
                self._members.hears_gone(role, rank)
        self._members.orders.says(party, self._members.orders.lifecycle(party).took_up())
