"""Derives what a scheme promises from its parameters, never from the code that is being checked."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core.phases.grammar import parse
from paceline.core.scheme import Scheme, make

EVERYBODY = -1
"""An update is made of one contribution of every worker that takes part."""
ALL_BUT_ONE = -2
"""An update is made of one contribution less than there are workers at the time."""


@dataclass(frozen=True, slots=True)
class Promised:
    """States what must hold on each server of a run, or of one phase of it.

    ahead            exchanges that a worker may be ahead of the slowest when it gets weights; None: no bound
    together         contributions that make one update, EVERYBODY or ALL_BUT_ONE; None: not known
    at_most_present  an update is made of no more contributions than there are workers
    waits            who has contributed gets no weights before an update with its contribution
    one_gate         that is held by the first server alone
    samples          samples of an update while nobody has come or gone; 0: not known
    in_groups        an update names all for whom its contributors speak
    """

    ahead: int | None = None
    together: int | None = None
    at_most_present: bool = False
    waits: bool = False
    one_gate: bool = False
    samples: int = 0
    in_groups: bool = False

    def contributions(self, present: int) -> int | None:
        """Returns the contributions to an update made now, with `present` workers; None if unknown."""
        if self.together is None or self.together == EVERYBODY:
            return None
        if self.together == ALL_BUT_ONE:
            return max(1, present - 1)
        return min(self.together, present) if self.at_most_present else self.together


def promises_of(scheme: Scheme) -> tuple[Promised, ...]:
    """Returns the promises of a scheme: one of every phase for `hybrid`, and otherwise one alone."""
    parameters = scheme.parameters()
    if scheme.name == "hybrid":
        phases = [make(phase.scheme, dict(phase.parameters)) for phase in parse(parameters["phases"])]
        return tuple(map(_promise, phases))
    return (_promise(scheme),)


def _promise(scheme: Scheme) -> Promised:
    """Returns what the parameters of one scheme promise. A new scheme gets a `case` here, or promises only
    `max_ahead`."""
    p = scheme.parameters()
    match scheme.name:
        case "bsp":
            return Promised(ahead=0, together=EVERYBODY, waits=True)
        case "lbbsp":
            return Promised(ahead=0, together=EVERYBODY, waits=True, samples=p["global_batch"])
        case "ssp":
            return Promised(ahead=p["staleness"], together=1)
        case "dssp":
            return Promised(ahead=p["high"], together=1)
        case "ksync":
            waits = p["variant"] == "sync"
            return Promised(together=p["k"] or ALL_BUT_ONE, at_most_present=waits, waits=waits, one_gate=True)
        case "gsp":
            return Promised(waits=True)
        case "asp" | "dcasgd" | "weedout" | "partial" | "easgd" | "eamsgd" | "asyncdiloco":
            return Promised(together=1)
        case "decoupled":
            # A window may end before a quorum of several has come: only without one do all wait for their merge.
            return Promised(waits=p["quorum"] == 1 or p["tau"] == 0)
        case "tiers" | "halos":
            return Promised(in_groups=True)
        case _:
            return Promised(ahead=scheme.max_ahead())  # nothing else is known of it than what it says itself
