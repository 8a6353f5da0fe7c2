"""Checks each message where it arrives: it is accepted as it is, brought to its bounds, or dropped.

`paceline.core.validation.message_admission` decides. Here is what follows from it in a live run:

    a strike                       is logged, and whoever listens is told
    the sender is to be expelled   the coordinator is told (`Unfit`), or does it itself
    an answer is dropped           the caller is told that there is none, since it must not wait for ever

Each slice of a message is a message of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.core.validation.bounds import PlanLimits
from paceline.core.validation.message_admission import MessageAdmission, Strike
from paceline.core.validation.message_checker import STRIKES
from paceline.live.node.hosted_slice import Declined
from paceline.live.protocol.transport import REPLY, Envelope

WHY_MAX = 400
"""Characters of a reason that are kept: it may quote what a peer sent."""

OnStrike = Callable[[Party, str, int], None]
"""Is called with the sender of a message beyond its bounds, the reason, and the number of that sender's strike."""


class MessageChecks:
    """Checks what one party is sent, on the thread that delivers to it, and tells whom strikes concern."""

    def __init__(self, me: Party) -> None:
        self._me, self._admission = me, MessageAdmission(me)
        self.strikes = self._admission.strikes
        self._on_strike: OnStrike = lambda src, why, strike: None
        self._expel: Callable[[int, str], None] = lambda rank, why: None

    def report_to(self, *, expel: Callable[[int, str], None], on_strike: OnStrike) -> None:
        """Sets who is told: `on_strike` of each strike, `expel` of a worker to expel, with its rank and a reason.

        A server and the coordinator call this when they begin.
        """
        self._expel, self._on_strike = expel, on_strike

    def planned(self, plan: control.Plan, *, late: bool = False) -> None:
        """Sets the bounds of `plan`. `late`: this party joins during training."""
        self._admission.planned(plan, late=late)

    @property
    def limits(self) -> PlanLimits:
        """Returns the limits that the plan sets; wide ones before it is known."""
        return self._admission.limits

    def begin_server_view(self) -> None:
        """Servers went back, and workers push again what was undone."""
        self._admission.servers_went_back()

    def refused(self, src: Party) -> bool:
        """Returns True if `src` has a strike."""
        return self._admission.refused(src)

    def came(self, rank: int) -> None:
        """Worker `rank` takes part from now on, as a newcomer."""
        self._admission.came(party.worker(rank))

    def admit(self, src: Party, envelope: Envelope, length: int = 0) -> bool:
        """Returns True if the message is to be handled, changed where it was beyond its bounds.

        length: elements of the slice that it is for; 0 if unknown.
        """
        is_answer = envelope.kind == REPLY
        faulty = self._admission.admit(src, envelope.message, envelope.slice, length, is_answer=is_answer)
        if faulty is None:
            return True
        self._report(faulty.strike)
        envelope.message = Declined() if faulty.near is None and is_answer else faulty.near
        return envelope.message is not None

    def fits(self, src: Party, message: Any, length: int) -> bool:
        """Returns True if the vectors of a message that was admitted before go with the `length` elements held here."""
        strike = self._admission.misfit(src, message, length)
        if strike is not None:
            self._report(strike)
        return strike is None

    def strike(self, src: Party, why: str, *, at_once: bool = False) -> None:
        """Counts a false claim of `src` that a role or the coordinator has found; `at_once`: it suffices to expel."""
        why = why if len(why) <= WHY_MAX else f"{why[:WHY_MAX]}..."  # it may quote what was said
        self._report(self._admission.strike(src, why, at_once=at_once))

    def _report(self, strike: Strike) -> None:
        """Logs a strike, and has its sender expelled where that was decided."""
        src, count = strike.src, strike.number
        if count <= STRIKES or count & (count - 1) == 0:  # then powers of two: it cannot fill the log
            print(f"{self._me}: {src} is refused (strike {count}): {strike.why}", file=sys.stderr, flush=True)
            self._on_strike(src, strike.why, count)
        if strike.expels and strike.reason:
            self._expel(src.index, strike.reason)
