"""The evaluator as the coordinator sees it: nobody waits for it during training, and it may be restarted.

    state    input                                         then                                               next
    THERE    connection, process lost; or it is silent     the trace has it; the supervisor starts it again   LOST
    LOST     Hello, servers are being replaced             waits until they are                               LOST
    LOST     Hello                                         Roster, Plan, Go; Finish if nobody trains now      THERE
    LOST     Hello, the run is over                        Exit                                               LOST

Before training starts the loss of the evaluator ends the run. It is not restarted once it has sent Saved.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.decisions import FailCallsTo, PartyJoined, Timer
from paceline.core.coordination.ending import RunEnding
from paceline.core.coordination.lifecycle import RunContext, RunPhase
from paceline.core.coordination.party import EVALUATOR, Party
from paceline.core.coordination.server_recovery import Recovery
from paceline.core.fault_tolerance.membership import Evict, Membership, MembershipDecision, MembershipState, Patience
from paceline.core.trace import MemberChange


class EvaluatorLives:
    """Watches the evaluator and brings its later incarnations up to date, on the coordinator's thread."""

    def __init__(self, run: RunContext, recovery: Recovery, ending: RunEnding, dead_after_s: float) -> None:
        """`dead_after_s`: after so many seconds of silence the evaluator counts as lost."""
        self._run, self._decide = run, run.decide
        self._recovery, self._ending = recovery, ending
        # It is in no view of the others. It makes no steps, so it can be silent, but neither stuck nor late to begin.
        self._members = Membership[Party](Patience(dead_s=dead_after_s, stuck_s=math.inf, join_s=math.inf))

    @property
    def incarnation(self) -> int:
        """Returns the number of the present incarnation, or of the last one."""
        return self._members.incarnation(EVALUATOR)

    def hears(self, incarnation: int) -> bool:
        """Returns True if what that incarnation says counts."""
        return self._members.hears(EVALUATOR, incarnation)

    def begin(self) -> None:
        """Begins to watch the evaluator; called when training starts."""
        if self._run.roster.evaluator:
            self._members.hello(0.0, EVALUATOR, 0)
            self._members.begin(0.0)
            self.look()

    def heard(self) -> None:
        """Notes that the evaluator is alive."""
        self._members.heard(self._run.now(), EVALUATOR)

    def survives(self) -> bool:
        """Returns True if the run continues when the evaluator is lost now."""
        return self._run.state.phase in (RunPhase.TRAINING, RunPhase.FINISHING)

    def lost(self, why: str) -> None:
        """Marks its present incarnation as lost; a second loss of the same incarnation changes nothing."""
        self._evict(self._members.lost(self._run.now(), EVALUATOR, self.incarnation, why))

    def look(self) -> None:
        """Looks for silence, several times a second until the run is over."""
        if self.survives():
            self._evict(self._members.tick(self._run.now()))
            self._decide.start_timer(self._members.patience.tick_s, Timer.EVALUATOR)

    def _evict(self, decisions: Iterable[MembershipDecision[Party]]) -> None:
        for decision in decisions:
            if isinstance(decision, Evict):
                why = decision.reason
                reason = f"{why}; training goes on" if self._run.state.training else why
                record = MemberChange(at=self._run.now(), party=str(EVALUATOR), event="lost", reason=reason)
                self._decide.record(record)
                self._decide.add(FailCallsTo(EVALUATOR, why))
                self._decide.close_connection(EVALUATOR, decision.incarnation, why)

    def hello(self, hello: control.Hello) -> None:
        """Takes in a later incarnation; while servers are being replaced it has to wait until they are restored."""
        if self._recovery.under_way:
            self._recovery.afterwards(lambda: self.hello(hello))
            return
        if not self.survives():
            self._decide.send([EVALUATOR], control.Exit())
            return
        now = self._run.now()
        self._evict(self._members.hello(now, EVALUATOR, hello.incarnation))
        if self._members.state(EVALUATOR) is not MembershipState.JOINING:
            return
        self._members.ready(now, EVALUATOR)
        self._run.roster.hellos[EVALUATOR] = hello
        self._decide.add(PartyJoined(EVALUATOR, hello))
        told = {"event": "returned", "host": hello.host, "reason": f"incarnation {hello.incarnation + 1}"}
        self._decide.record(MemberChange(at=now, party=str(EVALUATOR), **told))
        self._tell_what_it_missed()

    def _tell_what_it_missed(self) -> None:
        run = self._run
        roster = run.roster.roster(self._recovery.server_view, late=run.members)
        for message in (roster, run.state.plan, control.Go(at=run.now(), samples=run.totals.samples)):
            self._decide.send([EVALUATOR], message)
        if run.state.shares_left is not None:
            self._decide.send([EVALUATOR], run.state.shares_left)
        if run.state.phase is RunPhase.FINISHING:
            self._decide.send([EVALUATOR], self._ending.finish_order())
