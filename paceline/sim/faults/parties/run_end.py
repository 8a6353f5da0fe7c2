"""The end of a run as its parties see it: they are told Stop, leave, save the last model and exit.

    told        a worker                                      a server
    Stop        leaves after its step and its last exchange;  (is not told)
                a newcomer's process ends
    Finish      reads the last model; Saved                   Saved
    Exit        its process ends                              its process ends

`paceline.core.coordination.ending` decides, for live runs and for these. The last model is not simulated: reading and
saving it takes a drawn time.
"""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.decisions import Action, RunFinished, SendMessage, WriteRecord
from paceline.core.coordination.party import EVALUATOR
from paceline.core.coordinator.machine import CoordinatorMachine
from paceline.core.effects import Data
from paceline.core.fault_tolerance.membership import MembershipState
from paceline.sim.checking.oracles.end_of_run import ASKED, EndOfRun, StopWish
from paceline.sim.checking.oracles.silence import Silence
from paceline.sim.kernel.event_queue import Event
from paceline.sim.kernel.processes import Incarnation, SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.faulted_driver import FaultedDriver, LossyFaultedMembers

SAVING_MAX_S = 2.0
"""The longest time that a party takes to read and save the last model."""
HANG_S = 1000.0
"""How much longer the step of a worker takes that hangs."""


class SimulatedRunEnd:
    """Ends the run of `sim` by `wish`: brings what may end it to the coordinator, and its orders to the parties."""

    def __init__(
        self, sim: FaultedDriver, members: LossyFaultedMembers, machine: CoordinatorMachine, wish: StopWish
    ) -> None:
        assert sim.invariants is not None
        self._sim, self._members, self._machine, self._wish = sim, members, machine, wish
        self._rng = Random(f"{sim.seed}/end of run")
        self.clock = wish.clock
        self.oracle = EndOfRun(sim.invariants.broken, wish, self._samples_done)
        self.silence = Silence(sim.invariants.broken, sim.cluster.suspect_after_s, lambda: sim.now)
        self._stopped: set[tuple[str, int]] = set()  # processes
        self.hung: set[tuple[str, int]] = set()  # processes of newcomers that do not begin
        for at in wish.asked_at_s:
            sim.heap.push(at, self._asks)
        for at, accuracy in wish.evaluations:
            sim.heap.push(at, self._evaluates, accuracy)
        for rank, at in wish.hangs:
            sim.heap.push(at, self._hangs, rank)

    def _samples_done(self) -> int:
        """Returns how many leased samples are in the model, by the recount of the first server."""
        invariants = self._sim.invariants
        assert invariants is not None
        done: list[Data] = invariants.shard(0).done if self._sim.world.servers else []
        return len({(epoch, at) for data in done for epoch, start, stop in data for at in range(start, stop)})

    # ---- what may end the run ------------------------------------------------------------------------------
    def _asks(self) -> None:
        self._machine.stop(ASKED)
        self._members.carry_out_decisions()

    def _evaluates(self, accuracy: float) -> None:
        now = self._sim.now
        report = control.EvaluationReport(at=now, samples=0, accuracy=accuracy, loss=0.0, seconds=0.0)
        self._machine.told(EVALUATOR, report)
        self._members.carry_out_decisions()

    def _hangs(self, rank: int) -> None:
        """Lets the step that the worker is at take very long; one that is about to join does not begin."""
        if newcomer := self._members.newcomers.get(rank):
            self.hung.add(newcomer.process)
            return

        def later(event: Event) -> float:
            at, _, act, args = event
            return at + HANG_S if act is self._sim.worked and args[0].rank == rank else at

        self._sim.heap.change(later)

    def begins_later_s(self, newcomer: SimulatedProcess) -> float:
        """Returns by how much later the loop of a newcomer begins: by far, if it hangs."""
        return HANG_S if newcomer.process in self.hung else 0.0

    def restarted(self, ended: Incarnation) -> None:
        """Ends the step at which `ended` hangs now, if it does."""
        now = self._sim.now

        def at_once(event: Event) -> float:
            at, _, act, args = event
            hangs = act is self._sim.worked and args[0] is ended and at > now + HANG_S / 2
            return now if hangs else at

        self._sim.heap.change(at_once)

    def progressed(self, party: SimulatedProcess) -> None:
        """Tells the coordinator what `party`, which is heard, does, as its reports do four times a second."""
        who, members = party.who, self._machine.run.members
        self.silence.heard(party.name)
        at = self._reported_at()
        self._machine.heard(who, at)
        trains = party.kind == "worker" and members.state(who) is MembershipState.TRAINING
        if trains and party.process not in self.hung:
            incarnation = self._sim.incarnations[party.me]
            works = incarnation.alive and incarnation.awaited is None  # and does not wait for others, or leaves
            members.progressed(at, who, self._sim.steps[party.me], waits=not works, step_s=1.0)

    def _reported_at(self) -> float:
        """Returns what the coordinator's clock showed when it heard the last report of a party that lives.

        Where it jumps just now, a timer has rung before anything more was heard: the report is older than the jump.
        """
        now = self._sim.now
        if any(at == now for at, _ in self.clock.jumps):
            return self.clock.reads(math.nextafter(now, 0.0))
        return self._machine.run.now()

    # ---- what the coordinator decides ----------------------------------------------------------------------
    def decided(self, action: Action) -> None:
        """Hears every action before it is carried out."""
        match action:
            case WriteRecord(record=record):
                self.oracle.recorded(record)
                self.silence.recorded(record)
            case RunFinished():
                self.oracle.finished()
            case SendMessage(message=control.Finish()):
                self._members.watch_connections(lambda: self._members.over, self.gone)

    def gone(self, party: SimulatedProcess) -> None:
        """Notes that a process has ended, so that nobody waits for it."""
        self.oracle.gone(party.process)

    def finishes(self, party: SimulatedProcess) -> None:
        """Lets a party read the last model, which takes a while, since nobody trains any more."""
        self._hears(party, "Finish")
        self._sim.heap.push(self._sim.now + self._rng.random() * SAVING_MAX_S, self._saves, party)

    def exits(self, party: SimulatedProcess) -> None:
        """Ends the process of a party that may exit."""
        self._hears(party, "Exit")
        self._members.exits(party)

    def _hears(self, party: SimulatedProcess, what: str) -> None:
        training = [who.name for who in self._sim.world.workers if who.here]
        self.oracle.told(party.process, what, training)

    def stops(self, party: SimulatedProcess) -> None:
        """Lets a worker leave when it would begin its next step; the process of a newcomer ends."""
        self._hears(party, "Stop")
        if not self._members.ends_newcomer(party):
            self._stopped.add(party.process)
            self._members.leaving.add(party.me)

    def stopped(self, party: SimulatedProcess) -> bool:
        """Returns True if that process was told to stop: no fault restarts it."""
        return party.process in self._stopped

    def _saves(self, party: SimulatedProcess) -> None:
        """Answers Finish; a server that is down just now does so when it is back."""
        if self._members.bring_up and self._members.bring_up.hangs(party, "Saved"):
            return
        if party.hears:
            self.oracle.saved(party.process)
            self._members.orders.says(party, self._members.orders.lifecycle(party).saved())
        elif party.kind == "server":
            self._sim.heap.push(self._sim.now + SAVING_MAX_S, self._saves, party)
