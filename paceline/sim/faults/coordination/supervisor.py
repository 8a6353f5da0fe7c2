"""The supervisor of a simulated run, and versions: which process is started when, and which is refused.

    a process                              then
    starts                                 it has the version that its host has now, and says Hello
    its Hello comes, of this version       the coordinator hears it
    its Hello comes, of another version    it is told which one is spoken here, or only that the connection is closed
    hears of another version               it ends; so does one that was sent away too often
    ends                                   that is heard within a second; `core/supervisor` says what is started when
    is lost, and still runs                it is killed, where its host can be reached

`paceline.core.parties.first_contact` says who is refused and what a caller does then, `paceline.core.supervisor` which
process follows; for live runs and for these. A run without `StopWish.upgrades` has no supervisor: its faults say who
comes back when.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING

from paceline.core.coordination.lifecycle import RunPhase
from paceline.core.coordination.party import Party, worker
from paceline.core.parties.first_contact import PROTOCOL_VERSION, CallAgain, CallAttempts, GiveUp, why_refused
from paceline.core.supervisor.processes import (
    KillIncarnation,
    ProcessAction,
    ProcessSupervision,
    ShowLine,
    StartIncarnation,
)
from paceline.sim.checking.oracles.upgrades import UpgradeOracle, Upgrades
from paceline.sim.faults.coordination.members import RunLost
from paceline.sim.faults.parties.bring_up import hello_of
from paceline.sim.kernel.processes import SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.faulted_driver import FaultedDriver, SupervisedMembers

HEARD_MAX_S = 1.0
"""The longest time until the supervisor hears that a process has ended."""


class SimulatedSupervisor:
    """Starts the processes of `sim` that come in the place of others, and those that come late."""

    def __init__(self, sim: FaultedDriver, members: SupervisedMembers, upgrades: Upgrades) -> None:
        assert sim.invariants is not None
        self._sim, self._members, self._upgrades = sim, members, upgrades
        self._rng = Random(f"{sim.seed}/supervisor")
        self._decides = ProcessSupervision(upgrades.restarts)
        self.oracle = UpgradeOracle(sim.invariants.broken, upgrades, lambda: sim.now)
        self._versions: dict[tuple[str, int], int] = {}  # by process, as is what follows
        self._calls: dict[tuple[str, int], CallAttempts] = {}
        self._ended: set[tuple[str, int]] = set()
        late = [sim.world.workers[rank] for rank, _ in upgrades.late]
        first = (*sim.world.workers, *(members.present_servers if members.servers else ()))
        self._decides.begin([party.who for party in first], [party.who for party in late])
        for party in first:
            self._versions[party.process] = PROTOCOL_VERSION
        for party in late:
            party.here = party.hears = False
            self._ended.add(party.process)  # there is none yet
            sim.heap.push(0.0, members.absent_at_first, party.me)
        for rank, at in upgrades.late:
            sim.heap.push(at, self._grows, rank)
        for name, at in upgrades.ends:
            sim.heap.push(at, self._ends, name)

    # ---- processes start -----------------------------------------------------------------------------------
    def _carry_out(self, actions: Iterable[ProcessAction]) -> None:
        for action in actions:
            match action:
                case StartIncarnation(who=who):
                    self._starts(who)
                case KillIncarnation(who=who) if self._upgrades.kills:
                    self._sim.heap.push(self._heard_s(), self._kills, self._present(who))
                case ShowLine(line=line):
                    self.oracle.shown(line)
        self._looks_when_due()

    def _starts(self, who: Party) -> None:
        self.oracle.started(str(who))
        if who.kind == "worker":
            self._members.starts(who.index)
        else:
            self._members.servers.starts_next(who.index)
        self._version_of(self._present(who))

    def _grows(self, rank: int) -> None:
        if self._trains:
            self._carry_out([self._decides.next(worker(rank))])

    def _looks_when_due(self) -> None:
        due = self._decides.next_due()
        if due is not None:
            self._sim.heap.push(max(due, self._sim.now), self._looks)

    def _looks(self) -> None:
        due = self._decides.next_due()
        if due is not None and due <= self._sim.now:
            self._carry_out(self._decides.due(self._sim.now, trains=self._trains, needs_evaluator=False))

    @property
    def _trains(self) -> bool:
        state = self._members.machine.run.state
        return state.phase is RunPhase.TRAINING and not state.stopping

    def _present(self, who: Party) -> SimulatedProcess:
        """Returns the process of the moment, which may have ended."""
        if who.kind == "server":
            return self._members.present_servers[who.index]
        return self._members.newcomers.get(who.index) or self._sim.world.workers[who.index]

    def joined(self, who: Party, incarnation: int) -> None:
        """Notes that the coordinator has heard of a later incarnation."""
        self._decides.joined(who, incarnation)
        process = str(who), incarnation
        self.oracle.joined(process, self._versions[process])

    # ---- versions ------------------------------------------------------------------------------------------
    def _version_of(self, party: SimulatedProcess) -> int:
        """Returns the version of a process: that of its host when it started."""
        return self._versions.setdefault(party.process, self._upgrades.version(party.name, self._sim.now))

    def lets_in(self, party: SimulatedProcess) -> bool:
        """Returns True if a process that says Hello speaks the run's version. Otherwise it is told so, as a rule."""
        if not why_refused(self._version_of(party), PROTOCOL_VERSION):
            return True
        hears = self._is_sent_away if self._rng.random() < self._upgrades.silent else self._hears_version
        self._members.streams.send(self._members.control, party, 0, hears, (party,))
        return False

    def _attempts(self, party: SimulatedProcess) -> CallAttempts:
        return self._calls.setdefault(party.process, CallAttempts(self._version_of(party)))

    def _hears_version(self, party: SimulatedProcess) -> None:
        given_up = self._attempts(party).heard(PROTOCOL_VERSION)
        assert given_up is not None
        self._gives_up(party, given_up)

    def _is_sent_away(self, party: SimulatedProcess) -> None:
        match self._attempts(party).closed("it closed the connection"):
            case CallAgain(after_s=after_s):
                self._sim.heap.push(self._sim.now + after_s, self._calls_again, party)
            case GiveUp() as given_up:
                self._gives_up(party, given_up)

    def _calls_again(self, party: SimulatedProcess) -> None:
        if party.hears:
            self._members.tell(party, hello_of(party.incarnation))

    def _gives_up(self, party: SimulatedProcess, given_up: GiveUp) -> None:
        """Ends a process that was refused."""
        if party.hears and party.process not in self._ended:
            refused = given_up.why if given_up.other_version else ""
            self.ended(party, given_up.why, refused=refused)
            self._stop(party)

    # ---- processes end -------------------------------------------------------------------------------------
    def _ends(self, name: str) -> None:
        """Ends the process of the moment of a party, as somebody does who installs another version."""
        who = Party.parse(name)
        self._kills(self._present(who))

    def _kills(self, party: SimulatedProcess) -> None:
        members = self._members
        if not party.hears or members.over or members.has_left(party):
            return
        if party.kind == "server" and not self._may_end(party):
            return
        self.ended(party, "its process was killed")
        self._stop(party)

    def _may_end(self, party: SimulatedProcess) -> bool:
        """Returns False for a server that comes back as it was, or without which the run would end."""
        servers = self._members.servers
        return servers is not None and (servers.is_lost(party) or self._members.machine.survives(party.who))

    def _stop(self, party: SimulatedProcess) -> None:
        if party.kind == "server":
            self._members.servers.stops(party)
        elif self._present(party.who) is party:
            self._members.crash(party.me)
        else:
            self._members.end(party)

    def lost(self, who: Party, incarnation: int) -> None:
        """Notes that the coordinator goes on without an incarnation."""
        self._carry_out(self._decides.lost(who, incarnation))

    def ended(self, party: SimulatedProcess, why: str, *, refused: str = "") -> None:
        """Lets the supervisor hear, a moment later, that a process has ended. A second report changes nothing."""
        if party.process not in self._ended:
            self._ended.add(party.process)
            self._sim.heap.push(self._heard_s(), self._hears_end, party, why, refused)

    def _heard_s(self) -> float:
        return self._sim.now + self._rng.random() * HEARD_MAX_S

    def _hears_end(self, party: SimulatedProcess, why: str, refused: str) -> None:
        """Does what the supervisor does at the end of a process. Raises RunLost where the run cannot go on."""
        members, who = self._members, party.who
        if members.over:
            return
        self._decides.has_ended(who)
        if refused:
            self._decides.refused(who, f"{who}: {refused}")
            self.oracle.refused(str(who), self._version_of(party), refused)
        else:
            self.oracle.ended(str(who))
        if not members.machine.survives(who) or self._decides.hopeless(who, trains=self._trains):
            raise RunLost(f"{who} ended: {why}{members.machine.why_last(who)}")
        self.oracle.reported(party.process)
        members.ended(party)
        banned = members.machine.run.roster.banned
        self._carry_out(self._decides.ended(self._sim.now, who, trains=self._trains, banned=banned))

    def why_absent(self, cause: str) -> str:
        """Returns the cause of a run's failure, with why the last process of the party that it names was refused."""
        absent = [who for who in self._decides.known() if str(who) in cause]
        whys = [why for who in absent if (why := self._decides.refusal_of(who))]
        return f"{cause}; its last process was refused: {whys[0]}" if whys else cause

    # ---- afterwards ----------------------------------------------------------------------------------------
    def check_all_are_back(self, since: float) -> None:
        """Checks that all take part that were started with the right version since `since`, while the run trains."""
        if not self._trains:
            return
        here = [who.name for who in self._sim.world.workers if who.here or not self._upgrades.restarts]
        servers = self._members.servers
        if servers is None or not servers.any_is_away:
            here += [party.name for party in self._members.present_servers]
        gone = {str(who) for who in self._members.machine.run.roster.banned | self._decides.given_up}
        gone |= {party.name for party in self._sim.world.workers if self._members.has_left(party)}
        self.oracle.all_are_back(here, gone, since)
