"""Checks each message where it arrives, before any role sees it, as a live run does.

`paceline.core.validation.message_admission` decides for every process, as for a live one. Where nobody lies and
invariants watch the faults of a run, messages are checked, too: no honest party may have a strike, whatever is lost,
started again or undone.

    a strike                       of an honest party: InvariantBroken
    the sender is to be expelled   the coordinator is told, without a message
    enough strikes                 and the sender is not to be expelled, or a worker expels it: InvariantBroken
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import COORDINATOR, Party
from paceline.core.errors import may_be_of_message
from paceline.core.validation.bounds import REPEATS_MAX, Length, Range, bounds_of
from paceline.core.validation.message_admission import MessageAdmission, Strike, limits_of
from paceline.core.validation.message_checker import STRIKES
from paceline.sim.checking.invariants import InvariantBroken, Invariants
from paceline.sim.driver_protocol import SimulationDriver
from paceline.sim.faults.lying_worker import Lies
from paceline.sim.kernel.processes import SimulatedProcess

Process = tuple[str, int]


class CheckingProcess:
    """Holds what decides for one process. `refused`: messages by sender, counted once more.

    Without hazards a worker that is restarted begins anew in place, and may repeat its last clock.
    """

    def __init__(self, me: Party, sim: SimulationDriver, *, late: bool) -> None:
        self.me = me
        self.admission = MessageAdmission(me, repeats=0 if sim.cluster.hazards else REPEATS_MAX)
        self.admission.planned(sim.plan, late=late)
        self.refused: Counter[Party] = Counter()


class CheckedDriver(SimulationDriver, Protocol):
    """Shows a simulation whose run may be watched by invariants."""

    @property
    def invariants(self) -> Invariants | None: ...


class SimulatedMessageChecks:
    """Checks messages for all parties of `sim`. `coordinator`: it has found false claims itself."""

    def __init__(self, sim: CheckedDriver) -> None:
        self._sim = sim
        self.coordinator = CheckingProcess(COORDINATOR, sim, late=False)
        self._receivers: dict[Process, CheckingProcess] = {}
        self._ranged: Callable[[type], tuple[str, ...]] = functools.cache(_ranged)
        self.strikes: Counter[Party] = Counter()  # of all receivers together

    def admitted(self, party: SimulatedProcess, src: SimulatedProcess, message: Any) -> Any | None:
        """Returns the message as the role of `party` is given it, or None if it is dropped."""
        receiver = self._of(party)
        faulty = receiver.admission.admit(src.who, message, length=self._held(party))
        if faulty is not None:
            message = faulty.near
            self._report(receiver, faulty.strike, at_once=message is None)
        if src.kind == "worker" and src.me in self._sim.liars and message is not None:
            self._look_for_no_number(party, src, message)
            self._look_for_a_wrong_length(party, src, message)
        return message

    def _held(self, party: SimulatedProcess) -> int:
        """Returns the elements of the model that `party` holds: a server's slice, or all; 0 for the coordinator."""
        if party.kind == "server":
            part = self._sim.world.shards[party.me]
            return int(part.stop - part.start)
        return 0 if party.kind == "coordinator" else self._sim.length

    def _look_for_no_number(self, party: SimulatedProcess, src: SimulatedProcess, message: Any) -> None:
        """Raises InvariantBroken if a role is given a NaN of a liar in a field that has a range."""
        for name in self._ranged(type(message)):
            value = getattr(message, name)
            if value != value and self._sim.invariants:
                what = f"{party.name} takes {type(message).__name__}.{name} = {value} of {src.name}"
                raise self._sim.invariants.broken(what)

    def _look_for_a_wrong_length(self, party: SimulatedProcess, src: SimulatedProcess, message: Any) -> None:
        """Raises InvariantBroken if a role is given a vector of a liar that is not as long as it has to be."""
        held = self._held(party)
        for name, bound in bounds_of(type(message)).items() if held else ():
            if not isinstance(bound, Length):
                continue
            found = len(getattr(message, name))
            if (found > held or (bound.exact and found < held)) and self._sim.invariants:
                what = f"{party.name} takes {type(message).__name__}.{name} of {found} elements of {src.name}"
                raise self._sim.invariants.broken(f"{what}, and holds {held}")

    def lets_role_fail(self, party: SimulatedProcess, src: SimulatedProcess, message: Any, error: Exception) -> bool:
        """Returns True, and gives `src` a strike, if it is a liar and its message may have caused `error`."""
        lied = src.kind == "worker" and src.me in self._sim.liars and src is not party
        if not lied or isinstance(error, InvariantBroken) or not may_be_of_message(error):
            return False
        self.strike(self._of(party), src.who, f"{type(message).__name__}: {error!r}", at_once=True)
        return True

    def planned(self, party: SimulatedProcess, plan: control.Plan, *, late: bool) -> None:
        """Sets the bounds of `plan` at `party`, which was told it."""
        self._of(party).admission.planned(plan, late=late)

    def came(self, party: SimulatedProcess, rank: int) -> None:
        """Lets `party` know that the next incarnation of worker `rank` takes part."""
        self._of(party).admission.came(self._sim.world.workers[rank].who)

    def servers_went_back(self, party: SimulatedProcess) -> None:
        """Lets `party` know that servers are in an earlier state."""
        self._of(party).admission.servers_went_back()

    def refused_by_role(self, name: str, rank: int, why: str) -> None:
        """Counts a false claim of worker `rank` that a role of the process called `name` has found in its messages."""
        receiver = next(of for (known, _), of in reversed(self._receivers.items()) if known == name)
        self.strike(receiver, self._sim.world.workers[rank].who, why)

    def strike(self, receiver: CheckingProcess, src: Party, why: str, *, at_once: bool = False) -> None:
        """Counts a false claim of `src` that `receiver` has found itself; `at_once`: it suffices to expel a worker."""
        self._report(receiver, receiver.admission.strike(src, why, at_once=at_once), at_once=at_once)

    def _report(self, receiver: CheckingProcess, strike: Strike, *, at_once: bool) -> None:
        """Has a worker expelled where that was decided. Raises InvariantBroken as the table above says: here the
        simulator knows who lies, which a live run never does.
        """
        sim, src, refused = self._sim, strike.src, receiver.refused
        self.strikes[src] += 1
        refused[src] += 1  # in all its incarnations
        if sim.invariants:
            if src.kind != "worker" or src.index not in sim.liars:
                raise sim.invariants.broken(f"{src} has a strike, and has not lied: {strike.why}")
            if strike.reason is None and (at_once or refused[src] % STRIKES == 0):
                raise sim.invariants.broken(f"{src} is not expelled after strike {refused[src]}: {strike.why}")
            if strike.expels and receiver.me.kind == "worker":
                raise sim.invariants.broken(f"{receiver.me} has {src} expelled: {strike.why}")
        if strike.expels and strike.reason:
            sim.expel(src.index, strike.reason)

    def _of(self, party: SimulatedProcess) -> CheckingProcess:
        """Returns what decides for the process of `party`. One that replaced another did not see the start of the
        run."""
        receiver = self._receivers.get(party.process)
        if receiver is None:
            if party.kind == "coordinator":
                receiver = self.coordinator
            else:
                receiver = CheckingProcess(party.who, self._sim, late=party.incarnation > 0)
            self._receivers[party.process] = receiver
        return receiver


def _ranged(cls: type) -> tuple[str, ...]:
    """Returns the fields of a message that have a range."""
    return tuple(name for name, bound in bounds_of(cls).items() if isinstance(bound, Range))


def message_checks_and_lies(sim: CheckedDriver, *, watched: bool) -> tuple[SimulatedMessageChecks | None, Lies | None]:
    """Returns the message checks and the lies of a simulation; None in place of what it does not have.

    A run whose cluster has a fault of kind `lie` has both. One with hazards that invariants watch has the checks, which
    must find nothing. All others are not slowed down by a check of every message.
    """
    lies = any(fault.kind == "lie" for fault in sim.cluster.faults)
    if not lies and not (watched and sim.cluster.hazards):
        return None, None
    return SimulatedMessageChecks(sim), Lies(sim.seed, limits_of(sim.plan)) if lies else None
