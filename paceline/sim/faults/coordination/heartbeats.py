"""Whom the coordinator of a simulation hears, and its timers, where processes may be silent or cut off.

    a process lives, and no fault silences it     it counts as heard whenever silence is looked for
    it is silent, dead, or its connection broke   the machine decides what that means

`paceline.core.fault_tolerance.membership` decides who is lost, and when that is looked for. No message says that a
process is heard, and none that a worker has made a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from paceline.core.coordination.decisions import Timer
from paceline.core.coordination.party import Party
from paceline.core.fault_tolerance.membership import HERE
from paceline.sim.kernel.processes import SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.faulted_driver import FaultedDriver, HeardMembers


class SimulatedHeartbeats:
    """Rings the coordinator's timers, and tells its machine who is heard."""

    def __init__(self, sim: FaultedDriver, members: HeardMembers) -> None:
        self._sim, self._members = sim, members
        self._silent_until: dict[str, float] = {}  # by name
        self._watching = False

    # ---- timers --------------------------------------------------------------------------------------------
    def start(self, seconds: float, timer: Timer, number: int) -> None:
        """Starts a timer. That which looks for the silent ends when nobody is left to be watched (`watch`)."""
        members = self._members
        self._watching = self._watching or timer is Timer.MEMBERS
        due = self._sim.now + seconds
        if members.ends and not members.bring_up:
            due = members.ends.clock.shows(members.machine.run.now() + seconds)
        self._sim.heap.push(max(due, self._sim.now), self._rings, timer, number)

    def _rings(self, timer: Timer, number: int) -> None:
        members = self._members
        if timer is Timer.MEMBERS:
            self._watching = False
            servers_away = members.servers and members.servers.any_is_away
            if not (members.machine.run.roster.training or members.newcomers or servers_away):
                return
        if timer in (Timer.MEMBERS, Timer.EVALUATOR):
            self._hears_from_all()
        members.machine.rang(timer, number)
        members.carry_out_decisions()

    def watch(self) -> None:
        """Looks for silent processes again, now that there is somebody to watch."""
        if not self._watching:
            self._rings(Timer.MEMBERS, 0)

    # ---- who is heard --------------------------------------------------------------------------------------
    def silent(self, names: Iterable[str], for_s: float) -> None:
        """Lets nothing be heard of these processes for `for_s` seconds."""
        for name in names:
            self._silent_until[name] = max(self._sim.now + for_s, self._silent_until.get(name, 0.0))

    def _hears_from_all(self) -> None:
        """Notes everybody as heard that lives and that no fault silences."""
        now, members, machine = self._sim.now, self._members, self._members.machine
        for party in self._connected():
            silent = not party.hears or self._silent_until.get(party.name, 0.0) > now
            if not members.counts(party) or (silent and self._may_be_missed(party)):
                continue
            if members.ends:
                members.ends.progressed(party)
                continue
            machine.heard(party.who, now)
            if party.kind == "worker":  # a step may take any time here
                machine.run.members.progressed(now, party.who, 0, waits=True, step_s=math.inf)

    def _may_be_missed(self, party: SimulatedProcess) -> bool:
        """Returns False for a server that comes back as it was, or without which the run would end."""
        members = self._members
        if party.kind != "server":
            return True
        return members.servers is not None and (not party.hears or members.machine.survives(party.who))

    def _connected(self) -> Sequence[SimulatedProcess]:
        """Returns the processes of the moment; some of them may be dead, or lost."""
        members = self._members
        others = (*members.present_servers, *(members.bring_up.evaluators if members.bring_up else ()))
        return (*self._sim.world.workers, *members.newcomers.values(), *others)

    # ---- connections ---------------------------------------------------------------------------------------
    def connection_lost(self, who: Party) -> None:
        """Reports that the connection to a process has broken: it counts as failed, though it may still run.

        Nothing happens to a server that comes back as it was, or without which the run would end.
        """
        members = self._members
        party = members.process_of(who)
        starts = members.bring_up is not None and members.bring_up.lost(who)
        takes_part = starts or members.machine.run.members.state(who) in HERE
        if party and party.hears and self._may_be_missed(party) and takes_part:
            if members.ends:
                members.ends.gone(party)  # also where the order to save the model is on its way
            self._is_gone(who, "its connection was reset")

    def watch_connections(self, over: Callable[[], bool], gone: Callable[[SimulatedProcess], None]) -> None:
        """Reports whose connection has broken, until `over`: for phases in which nobody looks for the silent."""
        self._sim.heap.push(self._sim.now + self._sim.cluster.suspect_after_s, self._looks_at_connections, over, gone)

    def _looks_at_connections(self, over: Callable[[], bool], gone: Callable[[SimulatedProcess], None]) -> None:
        if over():
            return
        self.watch_connections(over, gone)
        for party in self._connected():
            if not party.hears and self._members.counts(party) and self._may_be_missed(party):
                gone(party)
                self._is_gone(party.who, "its process ended")

    def _is_gone(self, who: Party, why: str) -> None:
        self._members.machine.lost(who, why)
        self._members.carry_out_decisions()
