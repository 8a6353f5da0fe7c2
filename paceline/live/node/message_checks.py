"""Checks what others say where it arrives: it is taken as it is, brought to its bounds, or dropped.

    within its bounds                 taken
    beyond them                       a strike against its sender; taken as the nearest message within the bounds, so
                                      that nobody waits for ever, the sender's round least of all
    where there is no nearest one     dropped, and its sender is expelled at once: who was asked cannot answer

A worker is expelled at its third strike; the coordinator is told (`Unfit`) or does it itself. Workers cannot have one
another expelled, or a liar could accuse the others: they take what is within its bounds and say what was not. The
bounds are in `paceline.core.validation.bounds`; the coordinator, which gives the orders, is believed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from paceline.core.validation.bounds import SAMPLES_MAX, PlanLimits
from paceline.core.validation.message_checker import STRIKES, Checker, FalseClaims
from paceline.live import party
from paceline.live.node.hosted_slice import Declined
from paceline.live.party import Party
from paceline.live.protocol import control_messages as control
from paceline.live.protocol.transport import REPLY, Envelope

WHY_MAX = 400
EPOCHS_AHEAD = 8
"""Leases are taken ahead of the last epoch of a run, too, where epochs are short."""

Strike = Callable[[Party, str, int], None]
"""Hears whose message was beyond its bounds, in which way, and which strike of that sender it is."""


def limits_of(plan: control.Plan, me: Party) -> PlanLimits:
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
    """Of one party, on the thread that delivers to it."""

    def __init__(self, me: Party) -> None:
        self._me = me
        self._checker = Checker(PlanLimits(repeats=0))
        self._claims = FalseClaims()
        self.strikes = self._claims.strikes
        self._on_strike: Strike = lambda src, why, strike: None
        self._expel: Callable[[int, str], None] = lambda rank, why: None

    def report_to(self, *, expel: Callable[[int, str], None], on_strike: Strike) -> None:
        """From now on `on_strike` hears of each strike, and `expel` has a worker expelled, by its rank and a reason.

        A worker reports to nobody. A server and the coordinator begin to when they take up their part.
        """
        self._expel, self._on_strike = expel, on_strike

    def planned(self, plan: control.Plan, *, late: bool = False) -> None:
        """From now on the bounds are those of `plan`. `late`: training goes on already when this party hears of it."""
        self._checker = Checker(limits_of(plan, self._me), from_start=not (late or plan.resumed))

    def came(self, rank: int) -> None:
        """A later incarnation of a worker."""
        self._checker.came(party.worker(rank))

    def begin_server_view(self) -> None:
        """Servers went back: what was pushed since then is pushed again."""
        self._checker.forget_all()

    def admit(self, src: Party, envelope: Envelope, length: int = 0) -> bool:
        """Is the message to be taken? Changes it where it is beyond its bounds. `length`: of what is held for it."""
        if src == party.COORDINATOR:
            return True
        why = self._checker.check(src, envelope.message, envelope.slice, length)
        if why is None:
            return True
        near = self._checker.nearest(src, envelope.message, envelope.slice, length)
        self.strike(src, why, at_once=near is None and envelope.kind != REPLY)
        if near is None and envelope.kind == REPLY:
            near = Declined()  # whoever asked is told that there is no answer
        envelope.message = near
        return near is not None

    def strike(self, src: Party, why: str, *, at_once: bool = False) -> None:
        """`at_once`: it is expelled for that alone."""
        why = why if len(why) <= WHY_MAX else f"{why[:WHY_MAX]}..."  # it may quote what was said
        reason = self._claims.strike(src, why, at_once=at_once)
        count = self.strikes[src]
        if count <= STRIKES or count & (count - 1) == 0:  # a liar that goes on does not fill the log
            print(f"{self._me}: {src} is refused (strike {count}): {why}", file=sys.stderr, flush=True)
            self._on_strike(src, why, count)
        if src.kind == "worker" and reason:
            self._expel(src.index, reason)
