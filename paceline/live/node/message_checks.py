"""Checks each message where it arrives: it is accepted as it is, brought to its bounds, or dropped.

    within its bounds                 accepted
    beyond them                       a strike against its sender; accepted as the nearest message within the bounds,
                                      so that the round it belongs to does not wait for ever
    where there is no nearest one     dropped, and its sender is expelled at once, since nothing can be answered;
                                      in place of a reply the caller is told that there is none

A worker is expelled at its third strike at one receiver, over all its incarnations; each slice of a message is a
message of its own. The coordinator is told (`Unfit`) or does it itself. Workers cannot have one
another expelled, or a Byzantine worker could accuse the others: they accept what is within its bounds and log what was
not. The bounds are in `paceline.core.validation.bounds`; messages of the coordinator are trusted and not checked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.core.validation.bounds import SAMPLES_MAX, PlanLimits
from paceline.core.validation.message_checker import STRIKES, Checker, FalseClaims
from paceline.live.node.hosted_slice import Declined
from paceline.live.protocol.transport import REPLY, Envelope

WHY_MAX = 400
"""Characters of a reason that are kept: it may quote what a peer sent."""
EPOCHS_AHEAD = 8
"""How many epochs beyond the last one a lease may name: workers lease ahead, and epochs may be short."""

Strike = Callable[[Party, str, int], None]
"""Is called with the sender of a message beyond its bounds, the reason, and the number of that sender's strike."""


def limits_of(plan: control.Plan, me: Party) -> PlanLimits:
    """Returns the limits that a run's plan sets to what its parties may claim."""
    epochs = -(-plan.samples // plan.epoch_samples) + EPOCHS_AHEAD if plan.epoch_samples and plan.samples else 0
    return PlanLimits(
        workers=plan.workers,
        servers=plan.servers,
        samples=plan.contribution or SAMPLES_MAX,
        length=plan.length,
        epoch_samples=plan.epoch_samples,
        epochs=epochs,
        repeats=0,
    )


class MessageChecks:
    """Checks what one party is sent, on the thread that delivers to it, and counts strikes."""

    def __init__(self, me: Party) -> None:
        self._me = me
        self._checker = Checker(PlanLimits(repeats=0))
        self._claims = FalseClaims()
        self.strikes = self._claims.strikes
        self._on_strike: Strike = lambda src, why, strike: None
        self._expel: Callable[[int, str], None] = lambda rank, why: None

    def report_to(self, *, expel: Callable[[int, str], None], on_strike: Strike) -> None:
        """Sets who is told: `on_strike` of each strike, `expel` of a worker to expel, with its rank and a reason.

        A server and the coordinator call this when they begin. A worker does not: it may not accuse others.
        """
        self._expel, self._on_strike = expel, on_strike

    def planned(self, plan: control.Plan, *, late: bool = False) -> None:
        """Sets the bounds of `plan`. `late`: this party joins during training, so clocks do not begin at 1."""
        self._checker = Checker(limits_of(plan, self._me), from_start=not (late or plan.resumed))

    def came(self, rank: int) -> None:
        """Forgets the clocks of the sender's earlier incarnation, since a worker rejoined; its strikes stay."""
        self._checker.came(party.worker(rank))

    def begin_server_view(self) -> None:
        """Forgets all clocks: servers went back, and workers push again what was undone."""
        self._checker.forget_all()

    def admit(self, src: Party, envelope: Envelope, length: int = 0) -> bool:
        """Returns True if the message is to be handled, changed where it was beyond its bounds.

        length: elements of the slice that it is for; 0 if unknown.
        """
        if src == party.COORDINATOR:
            return True
        why = self._checker.check(src, envelope.message, envelope.slice, length)
        if why is None:
            return True
        near = self._checker.nearest(src, envelope.message, envelope.slice, length)
        self.strike(src, why, at_once=near is None and envelope.kind != REPLY)
        if near is None and envelope.kind == REPLY:
            near = Declined()  # the caller must not wait for ever: it is told that there is no answer
        envelope.message = near
        return near is not None

    def refused(self, src: Party) -> bool:
        """Returns True if `src` has a strike."""
        return self.strikes[src] > 0

    def strike(self, src: Party, why: str, *, at_once: bool = False) -> None:
        """Counts a strike against `src`, and expels a worker at its third, or `at_once`."""
        why = why if len(why) <= WHY_MAX else f"{why[:WHY_MAX]}..."  # it may quote what was said
        reason = self._claims.strike(src, why, at_once=at_once)
        count = self.strikes[src]
        if count <= STRIKES or count & (count - 1) == 0:  # then powers of two: it cannot fill the log
            print(f"{self._me}: {src} is refused (strike {count}): {why}", file=sys.stderr, flush=True)
            self._on_strike(src, why, count)
        if src.kind == "worker" and reason:
            self._expel(src.index, reason)
