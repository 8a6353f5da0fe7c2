"""Checks each message of a worker where it arrives, before any role sees it, as a live run does.

A message that is beyond its bounds is brought within them, or dropped where it has no nearest, and is a strike against
the worker in either case. Where nobody lies and invariants watch the faults of a run, messages are checked, too: no
honest worker may have a strike, whatever is lost, started again or undone.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from paceline.core.samples.sample_leases import Leases
from paceline.core.validation.bounds import REPEATS_MAX, SAMPLES_MAX, PlanLimits, Range, bounds_of
from paceline.core.validation.message_checker import STRIKES, Checker, FalseClaims
from paceline.sim.driver_protocol import SimulationDriver
from paceline.sim.faults.lying_worker import Lies
from paceline.sim.kernel.processes import SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.checking.invariants import Invariants

Process = tuple[str, int]


class _Receiver:
    """Holds what one process knows of the senders of its messages."""

    def __init__(self, limits: PlanLimits, *, from_start: bool) -> None:
        self.checker, self.claims = Checker(limits, from_start=from_start), FalseClaims()
        self.incarnations: dict[str, int] = {}  # by sender: of the last message
        self.refused: Counter[str] = Counter()  # messages by sender, counted once more


class CheckedDriver(SimulationDriver, Protocol):
    """Shows a simulation whose run may be watched by invariants."""

    @property
    def invariants(self) -> Invariants | None: ...


class SimulatedMessageChecks:
    """Checks messages for all parties of `sim`. Servers and the coordinator expel a worker; workers only reject."""

    def __init__(self, sim: CheckedDriver, epoch_samples: int, batch_samples: int) -> None:
        """`epoch_samples`, `batch_samples`: sizes that bound what a worker may claim; 0 if unknown."""
        self._sim = sim
        self.from_start = True  # clocks begin with 1, since the run is not resumed
        cluster = sim.cluster
        most = sim.scheme.most_samples(batch_samples, cluster.workers)
        self.limits = PlanLimits(
            workers=cluster.workers,
            servers=cluster.servers,
            samples=most or SAMPLES_MAX,
            length=sim.length,
            epoch_samples=epoch_samples,
            repeats=0 if cluster.hazards else REPEATS_MAX,  # a worker that is restarted in place repeats its push
        )
        self._receivers: dict[Process, _Receiver] = {}
        self._ranged: Callable[[type], tuple[str, ...]] = functools.cache(_ranged)
        self.strikes: Counter[int] = Counter()  # by rank, of all receivers together

    def admitted(self, party: SimulatedProcess, src: SimulatedProcess, message: Any) -> Any | None:
        """Returns the message as the role of `party` is given it, or None if it is dropped."""
        if src.kind != "worker":
            return message
        receiver = self._of(party)
        checker, incarnations = receiver.checker, receiver.incarnations
        if src.incarnation != incarnations.get(src.name, 0):
            incarnations[src.name] = src.incarnation
            # The first message of a later incarnation: its clock does not go on from that of the former one.
            checker.came(src.name)
        w = party.role.w
        length = len(w) if party.kind == "server" and w is not None else 0
        why = checker.check(src.name, message, length=length)
        if why is not None:
            near = checker.nearest(src.name, message, length=length)
            self.strike(party, src, why, at_once=near is None)
            message = near
        if src.me in self._sim.liars and message is not None:
            self._look_for_no_number(party, src, message)
        return message

    def _look_for_no_number(self, party: SimulatedProcess, src: SimulatedProcess, message: Any) -> None:
        """Raises InvariantBroken if a role is given a NaN of a liar in a field that has a range."""
        for name in self._ranged(type(message)):
            value = getattr(message, name)
            if value != value and self._sim.invariants:
                what = f"{party.name} takes {type(message).__name__}.{name} = {value} of {src.name}"
                raise self._sim.invariants.broken(what)

    def servers_went_back(self, party: SimulatedProcess) -> None:
        """Makes `party`, which has heard that servers went back, forget all clocks, as a live one does."""
        self._of(party).checker.forget_all()

    def strike(self, party: SimulatedProcess, src: SimulatedProcess, why: str, *, at_once: bool = False) -> None:
        """Counts a strike: `party` has found that what `src` says cannot be true. Enough strikes expel the worker.

        `at_once`: one such message suffices, because no nearest valid value exists. Raises InvariantBroken if an
        honest worker gets a strike, or if a worker is not expelled after enough of them: here the simulator knows
        who lies, which a live run never does.
        """
        sim = self._sim
        if src.me not in sim.liars and sim.invariants:
            raise sim.invariants.broken(f"{src.name} has a strike, and has not lied: {why}")
        self.strikes[src.me] += 1
        receiver = self._of(party)
        receiver.refused[src.name] += 1  # in all its incarnations
        reason = receiver.claims.strike(src.who, why, at_once=at_once)
        if reason is None and sim.invariants and (at_once or receiver.refused[src.name] % STRIKES == 0):
            raise sim.invariants.broken(f"{src.name} is not expelled after strike {receiver.refused[src.name]}: {why}")
        if reason and party.kind != "worker":
            sim.expel(src.me, reason)

    def _of(self, party: SimulatedProcess) -> _Receiver:
        """Returns what `party` knows of its senders. A process that replaced another one did not see the start of the
        run."""
        receiver = self._receivers.get(party.process)
        if receiver is None:
            from_start = self.from_start and not party.incarnation
            receiver = self._receivers[party.process] = _Receiver(self.limits, from_start=from_start)
        return receiver


def _ranged(cls: type) -> tuple[str, ...]:
    """Returns the fields of a message that have a range."""
    return tuple(name for name, bound in bounds_of(cls).items() if isinstance(bound, Range))


def message_checks_and_lies(
    sim: CheckedDriver, leases: Leases | None, batch_samples: int, *, watched: bool
) -> tuple[SimulatedMessageChecks | None, Lies | None]:
    """Returns the message checks and the lies of a simulation; None in place of what it does not have.

    A run whose cluster has a fault of kind `lie` has both. One with hazards that invariants watch has the checks, which
    must find nothing. All others are not slowed down by a check of every message.
    """
    lies = any(fault.kind == "lie" for fault in sim.cluster.faults)
    if not lies and not (watched and sim.cluster.hazards):
        return None, None
    message_checks = SimulatedMessageChecks(sim, leases.samples if leases else 0, batch_samples)
    return message_checks, Lies(sim.seed, message_checks.limits) if lies else None
