"""Decides which messages one party handles, and counts the strikes of those who send others.

    input                                        then
    the coordinator's message (`admit`)          it is trusted: handled as it is
    a message within its bounds                  handled as it is; its clock counts as seen
    a message beyond them                        a strike; the nearest message within the bounds is handled, so that
                                                 the round that it belongs to does not wait for ever
    one beyond them that has no nearest          a strike; it is dropped. A question or a tell suffices to expel its
                                                 sender. An answer does not
    a role or the coordinator has found a false  a strike, which may suffice (`at_once`)
    claim (`strike`)
    a worker's next incarnation came (`came`)    its clocks begin anew; its strikes stay
    servers went back (`servers_went_back`)      all clocks are forgotten; strikes stay
    the plan (`planned`)                         its bounds hold, and clocks begin anew; strikes stay

A worker is to be expelled at each third strike at one receiver, over all its incarnations, or at one that suffices.
Servers and the coordinator have it expelled. Workers and the evaluator have nobody expelled: a Byzantine worker could
accuse the others.

Live parties drive this machine in `paceline.live.node.message_checks`, simulated ones in
`paceline.sim.message_checks`. `message_checker.py` compares messages with their bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from paceline.core.validation.bounds import SAMPLES_MAX, PlanLimits
from paceline.core.validation.message_checker import Checker, FalseClaims

EPOCHS_AHEAD = 8
"""How many epochs beyond the last one a lease may name: workers lease ahead, and epochs may be short."""
ACCUSERS = ("server", "coordinator")
"""The kinds of parties that may have a worker expelled."""


class Named(Protocol):
    """Is a party (`paceline.core.coordination.party`), of which messages are looked up by its hash."""

    @property
    def kind(self) -> str: ...


class PlannedSizes(Protocol):
    """Is what a plan (`paceline.core.coordination.control_messages.Plan`) says of sizes; 0 where one is unknown."""

    @property
    def workers(self) -> int: ...
    @property
    def servers(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def samples(self) -> int: ...
    @property
    def contribution(self) -> int: ...
    @property
    def epoch_samples(self) -> int: ...
    @property
    def resumed(self) -> bool: ...


def limits_of(plan: PlannedSizes, repeats: int = 0) -> PlanLimits:
    """Returns the limits that a run's plan sets to what its parties may claim. `repeats`: see `PlanLimits`."""
    epochs = -(-plan.samples // plan.epoch_samples) + EPOCHS_AHEAD if plan.epoch_samples and plan.samples else 0
    return PlanLimits(
        workers=plan.workers,
        servers=plan.servers,
        samples=plan.contribution or SAMPLES_MAX,
        length=plan.length,
        epoch_samples=plan.epoch_samples,
        epochs=epochs,
        repeats=repeats,
    )


@dataclass(frozen=True, slots=True)
class Strike:
    """Says that a claim of a party was false.

    why     what was wrong with it
    number  of this strike among those of its sender at this receiver, from 1
    reason  why the sender, a worker, is to be expelled; None while it has not enough strikes
    expels  the receiver has it expelled, for `reason`
    """

    src: Any
    why: str
    number: int
    reason: str | None
    expels: bool


@dataclass(frozen=True, slots=True)
class FaultyMessage:
    """Is returned for a message beyond its bounds. `near`: the message to handle in its place; None: none at all."""

    near: Any | None
    strike: Strike


class MessageAdmission:
    """Decides for one party, on the thread that delivers to it. `repeats`: see `PlanLimits`."""

    def __init__(self, me: Named, *, repeats: int = 0) -> None:
        self._may_expel, self._repeats = me.kind in ACCUSERS, repeats
        self._checker = Checker(PlanLimits(repeats=repeats))
        self._claims = FalseClaims()
        self.strikes = self._claims.strikes  # by sender

    @property
    def limits(self) -> PlanLimits:
        return self._checker.limits

    def planned(self, plan: PlannedSizes, *, late: bool = False) -> None:
        """Sets the bounds of `plan`. `late`: this party joins during training, so clocks do not begin with 1."""
        self._checker = Checker(limits_of(plan, self._repeats), from_start=not (late or plan.resumed))

    def admit(
        self, src: Named, message: Any, stream: Any = 0, length: int = 0, *, is_answer: bool = False
    ) -> FaultyMessage | None:
        """Returns None if `message` of `src` is to be handled as it is.

        stream: one of several from `src`, such as the slices of a push, which have each the same clock. length:
        elements of the model that the receiver holds of that slice; 0: unknown.
        """
        if src.kind == "coordinator":
            return None
        why = self._checker.check(src, message, stream, length)
        if why is None:
            return None
        near = self._checker.nearest(src, message, stream, length)
        return FaultyMessage(near, self.strike(src, why, at_once=near is None and not is_answer))

    def misfit(self, src: Named, message: Any, length: int) -> Strike | None:
        """Returns the strike for a vector of a wrong length in a message that was admitted when none was known yet."""
        why = self._checker.misfit(message, length) if length and src.kind != "coordinator" else None
        return None if why is None else self.strike(src, why, at_once=True)

    def strike(self, src: Named, why: str, *, at_once: bool = False) -> Strike:
        """Counts a false claim of `src`. `at_once`: it cannot come from a correct program, so one is enough."""
        reason = self._claims.strike(src, why, at_once=at_once)
        if src.kind != "worker":
            reason = None
        return Strike(src, why, self.strikes[src], reason, self._may_expel and reason is not None)

    def refused(self, src: Named) -> bool:
        """Returns True if `src` has a strike."""
        return self.strikes[src] > 0

    def came(self, src: Named) -> None:
        """Another incarnation of worker `src` takes part from now on."""
        self._checker.came(src)

    def servers_went_back(self) -> None:
        """Servers are in an earlier state, and workers push again what was undone."""
        self._checker.forget_all()
