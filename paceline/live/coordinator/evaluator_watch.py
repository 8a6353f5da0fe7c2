"""The evaluator, as the coordinator sees it: it may have several incarnations, and nobody waits for it in training.

lost        by its connection, its process or silence: training goes on; the supervisor starts the next incarnation
coming      Hello -> Roster, Plan, Go, and Finish where nobody trains any more
over        it has said Saved, and is not started again
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from paceline.core.fault_tolerance.membership import Decision, Evict, MembershipState, Patience
from paceline.core.fault_tolerance.membership import Membership as Members
from paceline.core.trace import Membership
from paceline.live.coordinator.lifecycle import RunPhase, RunState
from paceline.live.coordinator.listener import CoordinatorListener
from paceline.live.coordinator.roster import RunRoster
from paceline.live.coordinator.server_recovery import Recovery
from paceline.live.node.node import Node
from paceline.live.party import EVALUATOR, Party
from paceline.live.protocol import control_messages as control
from paceline.live.protocol.transport import Transport, tell

TICK_SECONDS = 0.25


class EvaluatorLives:
    """Everything happens on the coordinator's thread."""

    def __init__(
        self,
        transport: Transport,
        node: Node,
        listener: CoordinatorListener,
        *,
        run_state: RunState,
        roster: RunRoster,
        recovery: Recovery,
        dead_after_s: float,
        welcome: Callable[[Party], None],
    ) -> None:
        """`welcome` sends a later incarnation what it has missed. `dead_after_s`: silence that counts as its death."""
        self._transport, self._node, self._listener = transport, node, listener
        self._tell = functools.partial(tell, transport)
        self._run_state, self._roster, self._recovery, self._welcome = run_state, roster, recovery, welcome
        self._members = Members[Party](Patience(dead_s=dead_after_s))

    @property
    def incarnation(self) -> int:
        """Returns the number of the present or the last incarnation."""
        return self._members.incarnation(EVALUATOR)

    def begin(self) -> None:
        """Begins when training starts."""
        if self._roster.evaluator:
            self._members.hello(0.0, EVALUATOR, 0)
            self._members.begin(0.0)
            self._look()

    def heard(self) -> None:
        """Something came from it."""
        self._members.heard(self._node.now(), EVALUATOR)

    def survives(self) -> bool:
        """Does the run go on if the evaluator is lost now?"""
        return self._run_state.phase in (RunPhase.TRAINING, RunPhase.FINISHING)

    def lost(self, why: str) -> None:
        """Its present incarnation is over; of one that is lost already nobody hears again."""
        self._evict(self._members.lost(self._node.now(), EVALUATOR, self.incarnation, why))

    def _look(self) -> None:
        """A few times a second until the run is over."""
        if self.survives():
            self._evict(self._members.tick(self._node.now()))
            self._transport.call_later(min(TICK_SECONDS, self._members.patience.dead_s / 4), self._look)

    def _evict(self, decisions: Iterable[Decision[Party]]) -> None:
        for decision in decisions:
            if isinstance(decision, Evict):
                why = decision.reason
                reason = f"{why}; training goes on" if self._run_state.phase is RunPhase.TRAINING else why
                record = Membership(at=self._node.now(), party=str(EVALUATOR), event="lost", reason=reason)
                self._listener.recorded(record)
                self._node.lost(EVALUATOR, why)
                self._transport.drop(EVALUATOR, decision.incarnation, why)

    def hello(self, hello: control.Hello) -> None:
        """Handles the hello of a later incarnation. Servers that are being replaced come first."""
        if self._recovery.under_way:
            self._recovery.afterwards(lambda: self.hello(hello))
            return
        if not self.survives():
            self._tell([EVALUATOR], control.Exit())
            return
        now = self._node.now()
        self._evict(self._members.hello(now, EVALUATOR, hello.incarnation))
        if self._members.state(EVALUATOR) is not MembershipState.JOINING:
            return
        self._members.ready(now, EVALUATOR)
        self._roster.hellos[EVALUATOR] = hello
        self._listener.joined(EVALUATOR, hello)
        told = {"event": "returned", "host": hello.host, "reason": f"incarnation {hello.incarnation + 1}"}
        self._listener.recorded(Membership(at=now, party=str(EVALUATOR), **told))
        self._welcome(EVALUATOR)
