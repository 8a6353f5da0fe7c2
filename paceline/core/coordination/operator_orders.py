"""Carries out what a person asks of a run that trains, and records what became of it.

    order          then                                                refused if
    expel          the worker is lost for good                         the run could not go on without it
    drain          it finishes its step and leaves                     the same
    grow           the supervisor has started a worker                 there is no free place
    checkpoint     the evaluator writes one                            the run keeps none
    learning-rate  all workers multiply theirs by the factor, once     the factor is not within FACTORS

Whether there is a place or a checkpoint the supervisor knows; it says so with the order. A refused order is recorded
like any other: `Decided` of the party `operator`, whose verdict begins with "refused".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from paceline.core.coordination import loop_messages, party
from paceline.core.coordination.elasticity import Elasticity
from paceline.core.coordination.ending import RunEnding
from paceline.core.coordination.lifecycle import RunContext
from paceline.core.coordination.party import Party
from paceline.core.trace import OPERATOR, Decided, rate_change

EXPEL, DRAIN, GROW, CHECKPOINT, LEARNING_RATE = ORDERS = ("expel", "drain", "grow", "checkpoint", "learning-rate")
OF_A_WORKER = (EXPEL, DRAIN)
"""Orders that name a worker."""
FACTORS = (1e-6, 1e6)
"""The smallest and the largest factor on the learning rate, one order and all together."""
BY = "asked for by the operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOrder:
    """Asks for something; `rank`: of the worker, `factor`: on the learning rate, where the kind has one.

    Raises ValueError for what is no order.
    """

    kind: str
    rank: int = 0
    factor: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in ORDERS:
            raise ValueError(f"{self.kind!r:.40} is no order: {', '.join(ORDERS)}")
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or not 0 <= self.rank < 1 << 31:
            raise ValueError(f"{self.rank!r:.40} is no rank of a worker")
        if isinstance(self.factor, bool) or not isinstance(self.factor, int | float) or not math.isfinite(self.factor):
            raise ValueError(f"{self.factor!r:.40} is no factor")


class OperatorOrders:
    """Handles orders, on the coordinator's thread."""

    def __init__(self, run: RunContext, elasticity: Elasticity, ending: RunEnding) -> None:
        self._run, self._elasticity, self._ending = run, elasticity, ending

    def take(self, order: OperatorOrder, why_not: str = "") -> None:
        """Carries an order out, or refuses it. `why_not`: why the supervisor refuses it."""
        why_not = why_not or self._why_not(order)
        if why_not:
            self._record(order, f"refused: {order.kind}", why_not)
            return
        self._record(order, order.kind, self._what(order))
        who = party.worker(order.rank)
        match order.kind:
            case "expel":
                self._elasticity.expel(who, BY)
                self._ending.go_on()
            case "drain":
                self._run.decide.send([who], loop_messages.Drain(reason=BY))
            case "checkpoint":
                self._run.decide.send(self._run.roster.evaluator, loop_messages.SaveNow())
            case "learning-rate":
                state = self._run.state
                state.rate_factor *= order.factor
                self._run.decide.send(
                    sorted(self._run.roster.training), loop_messages.ScaleRate(factor=state.rate_factor)
                )

    def _why_not(self, order: OperatorOrder) -> str:
        """Returns why an order is refused; "" if it is not."""
        state = self._run.state
        if not state.training or state.stopping:
            return "nobody trains now"
        who = party.worker(order.rank)
        if order.kind in OF_A_WORKER:
            if who not in self._run.roster.training:
                return f"{who} does not train"
            if not self._elasticity.survives(who):
                return f"the run would end without {who}{self._elasticity.why_last(who)}"
        if order.kind == CHECKPOINT and not self._run.roster.evaluator:
            return "this run has no evaluator, which writes checkpoints"
        if order.kind == LEARNING_RATE:
            low, high = FACTORS
            if not (low <= order.factor <= high and low <= order.factor * state.rate_factor <= high):
                return f"a factor of {order.factor:g} leads beyond {low:g} to {high:g}"
        return ""

    def _what(self, order: OperatorOrder) -> str:
        """Returns what an order does, for the trace."""
        match order.kind:
            case "expel" | "drain":
                return f"{self._who(order)}, {BY}"
            case "learning-rate":
                return f"{rate_change(order.factor, order.factor * self._run.state.rate_factor)}, {BY}"
        return BY

    def _who(self, order: OperatorOrder) -> Party:
        return party.worker(order.rank)

    def _record(self, order: OperatorOrder, verdict: str, reason: str) -> None:
        """Records an order in the trace. One about the whole run has rank 0."""
        self._run.decide.record(
            Decided(at=self._run.now(), party=OPERATOR, rank=order.rank, verdict=verdict, reason=reason)
        )
