"""Carries a plan of faults out on a thread of its own, and notes how the run reacts.

    kind        begins                                  ends                          settled when
    kill        SIGKILL                                 at once                       it was lost and is back
    stop        SIGSTOP                                 SIGCONT after `for_s`         back, or not lost by then
    slow        SIGSTOP and SIGCONT in turn             after `for_s`                 as above
    partition   its connections are cut (`proxy.py`)    let through after `for_s`     as above

The rule of this file: everything happens on the runner's thread, by the clock of the coordinator; trace records arrive
on another thread and are handled here. A fault whose target is away hits another party of the same kind, or waits.
"""

from __future__ import annotations

import heapq
import itertools
import signal
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from paceline.chaos.plan import KILLS, PlannedFault
from paceline.core.coordination.party import Party
from paceline.core.trace import Applied, MemberChange, Record, Span

TURN_SECONDS = 0.05
"""Seconds of a turn in which a slowed worker goes on; it is stopped for a multiple of that."""
AGAIN_SECONDS = 0.2
"""Seconds until a party is looked for again, where nobody could be spared."""
CALM_SECONDS = 1.0
"""Seconds after the end of a fault in which its loss may still be noticed; a party that came back is spared as long."""


class Targets(Protocol):
    """Describes what carries faults out: `FaultyLauncher`, or a fake in tests."""

    def signal(self, who: Party, number: signal.Signals) -> None: ...
    def cut_off(self, who: Party) -> None: ...
    def let_through(self, who: Party) -> None: ...


@dataclass(slots=True, kw_only=True)
class FaultOutcome:
    """Records the outcome of a fault, in seconds on the coordinator's clock.

    whom     another party than planned, if that was away
    ended_s  when the fault ended; None while it lasts
    lost_s   when the party was declared failed; None if it was not
    back_s   when it was back; None if it is not
    """

    fault: PlannedFault
    whom: Party
    at_s: float
    ended_s: float | None = None
    lost_s: float | None = None
    back_s: float | None = None

    def settled(self, now: float) -> bool:
        """Returns True if nothing more can come of the fault.

        A party that was declared failed has to be back. A stop or a cut that was not noticed settles CALM_SECONDS after
        its end; a kill is always noticed.
        """
        if self.ended_s is None or (self.lost_s is not None and self.back_s is None):
            return False
        return self.lost_s is not None or (not self.kills and now > self.ended_s + CALM_SECONDS)

    @property
    def kills(self) -> bool:
        """Returns True if the fault is over at once."""
        return self.fault.kind in KILLS

    def __str__(self) -> str:
        instead = "" if self.whom == self.fault.whom else f" ({self.whom} instead)"
        return f"{self.fault}{instead}: {self._what_came()}"

    def _what_came(self) -> str:
        """Returns the outcome in words, with seconds since the fault began."""
        if self.lost_s is None:
            return "not heard of when the run ended" if self.ended_s is None or self.kills else "it went on"
        lost = f"declared failed after {max(0.0, self.lost_s - self.at_s):.2f} s"
        if self.back_s is None:
            return f"{lost}, not back when the run ended"
        return f"{lost}, back after {self.back_s - self.at_s:.2f} s"


class FaultRunner:
    """Carries a plan out. `tell` is called with a line for each fault, once it is over.

    outcomes  the faults that have begun, in their order
    unasked   losses of parties that no fault had touched: each is a false alarm, or a bug
    _away     parties that are down, or came back less than CALM_SECONDS ago
    _held     parties that are stopped, slowed or cut off now
    _agenda   what to do when, as a heap; the sequence number keeps equal moments in order
    """

    def __init__(
        self,
        plan: Sequence[PlannedFault],
        parties: Sequence[Party],
        targets: Targets,
        tell: Callable[[str], None],
    ) -> None:
        self._parties, self._targets, self._tell = parties, targets, tell
        self.outcomes: list[FaultOutcome] = []
        self.unasked: list[MemberChange] = []  # losses of those whom no fault had touched
        self._away: set[Party] = set()
        self._held: set[Party] = set()
        self._told: set[int] = set()
        self._planned, self._settled = len(plan), False
        self._records: deque[Record] = deque()
        self._changed = threading.Condition()
        self._begun = self._over = False
        self._sequence = itertools.count()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._clock: Callable[[], float] = lambda: 0.0
        self._calm: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="runner", daemon=True)
        for fault in plan:
            self._at(fault.at_s, lambda fault=fault: self._strike(fault))  # type: ignore[misc]

    def start(self, clock: Callable[[], float], calm: Callable[[], None]) -> None:
        """Starts the thread. Faults begin after the first step; `calm` is called a while after all have settled.

        clock: seconds since training began.
        """
        self._clock, self._calm = clock, calm
        self._thread.start()

    def heard(self, record: Record) -> None:
        """Takes a trace record, from any thread; only updates, steps and changes of membership matter."""
        if not self._begun and isinstance(record, Applied | Span):
            self._begun = True
        elif not isinstance(record, MemberChange):
            return
        with self._changed:
            self._records.append(record)
            self._changed.notify()

    def end(self) -> None:
        """Ends all faults when the run is over, and reports the outcomes that were not reported yet."""
        with self._changed:
            self._over = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()
        for outcome in self.outcomes:
            if outcome.ended_s is None:
                self._let_go(outcome.fault, outcome.whom)
            self._tell_of(outcome)

    # ---- on the runner's thread --------------------------------------------------------------------------
    def _run(self) -> None:
        """Does what is due, until the run is over."""
        while self._wait():
            while self._records:
                record = self._records.popleft()
                if isinstance(record, MemberChange):
                    self._changes(record)
            while self._begun and self._agenda and self._agenda[0][0] <= self._clock():
                heapq.heappop(self._agenda)[2]()
            for outcome in self.outcomes:
                if outcome.settled(self._clock()):
                    self._tell_of(outcome)
            if len(self._told) == self._planned and not self._settled:
                self._settled = True
                self._at(self._clock() + CALM_SECONDS, self._calm)

    def _wait(self) -> bool:
        """Waits until something is due; returns False when the run is over."""
        with self._changed:
            due = self._agenda[0][0] - self._clock() if self._begun and self._agenda else None
            self._changed.wait_for(lambda: self._records or self._over, due if due is None else max(0.0, due))
            return not self._over

    def _at(self, when: float, act: Callable[[], None]) -> None:
        """Puts `act` on the agenda, for `when` seconds on the run's clock."""
        heapq.heappush(self._agenda, (when, next(self._sequence), act))

    def _changes(self, record: MemberChange) -> None:
        """Notes a loss or a return, and ends the fault that held whoever is lost."""
        who = Party.parse(record.party)
        now = self._clock()
        mine = next((o for o in reversed(self.outcomes) if o.whom == who and not o.settled(now)), None)
        if record.event == "lost":
            self._away.add(who)
            if mine is None:
                self.unasked.append(record)
            elif mine.lost_s is None:
                mine.lost_s = record.at
                if mine.ended_s is None:  # who comes in its place has no part in what held it
                    self._ends(mine)
        elif record.event in ("returned", "replaced"):
            self._at(now + CALM_SECONDS, lambda: self._away.discard(who))
            if mine is not None and mine.lost_s is not None:
                mine.back_s = record.at

    def _tell_of(self, outcome: FaultOutcome) -> None:
        """Reports an outcome, once."""
        if outcome.fault.number not in self._told:
            self._told.add(outcome.fault.number)
            self._tell(str(outcome))

    # ---- what is done ------------------------------------------------------------------------------------
    def _strike(self, fault: PlannedFault) -> None:
        """Carries out a fault, or looks again in AGAIN_SECONDS if nobody can be spared now."""
        now = self._clock()
        whom = self._spared(fault)
        if whom is None:
            self._at(now + AGAIN_SECONDS, lambda: self._strike(fault))
            return
        outcome = FaultOutcome(fault=fault, whom=whom, at_s=now)
        self.outcomes.append(outcome)
        if outcome.kills:
            self._away.add(whom)
            self._targets.signal(whom, signal.SIGKILL)
            outcome.ended_s = now
            return
        self._held.add(whom)
        if fault.kind == "slow":
            self._slow_down(outcome, now + fault.for_s)
            return
        if fault.kind == "stop":
            self._targets.signal(whom, signal.SIGSTOP)
        else:
            self._targets.cut_off(whom)
        self._at(now + fault.for_s, lambda: self._ends(outcome))

    # A run does not survive the loss of all its workers, and two faults of one party at a time could not be told apart.
    def _spared(self, fault: PlannedFault) -> Party | None:
        """Returns the target, or the next of its kind that is present and untouched; None if nobody can be spared.

        One untouched worker must remain.
        """
        kind = fault.whom.kind
        alike = [who for who in self._parties if who.kind == kind]
        fit = [who for who in alike if who not in self._away | self._held]
        if not fit or (kind == "worker" and len(fit) < 2):
            return None
        return next((who for who in fit if who >= fault.whom), fit[0])

    def _slow_down(self, outcome: FaultOutcome, until: float) -> None:
        """Slows a process down for one turn: it is stopped for (times - 1) / times of it."""
        now, whom = self._clock(), outcome.whom
        if now >= until or outcome.ended_s is not None:
            self._ends(outcome)
            return
        self._targets.signal(whom, signal.SIGSTOP)
        at_rest = TURN_SECONDS * (outcome.fault.times - 1)
        self._at(now + at_rest, lambda: self._targets.signal(whom, signal.SIGCONT))
        self._at(now + at_rest + TURN_SECONDS, lambda: self._slow_down(outcome, until))

    def _ends(self, outcome: FaultOutcome) -> None:
        """Ends a fault that lasts, once: what was stopped goes on, what was cut is let through."""
        if outcome.ended_s is not None:
            return
        outcome.ended_s = self._clock()
        self._held.discard(outcome.whom)
        self._let_go(outcome.fault, outcome.whom)
        self._at(outcome.ended_s + 1.1 * CALM_SECONDS, lambda: None)  # to look whether it is settled

    def _let_go(self, fault: PlannedFault, whom: Party) -> None:
        """Undoes a fault that lasts; a kill needs nothing."""
        if fault.kind == "partition":
            self._targets.let_through(whom)
        elif fault.kind not in KILLS:
            self._targets.signal(whom, signal.SIGCONT)
