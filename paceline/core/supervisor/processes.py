"""Decides which process of each party runs, and when the next one is started.

    input                                       then
    begin                                       StartIncarnation of all that begin
    lost: the coordinator goes on without it    KillIncarnation; a server's successor, if its process has ended
    ended: its process has, and the run goes    by `restart_policy.py`: StartIncarnation now, later (`due`) or never;
    on                                          ShowLine says why not
    refused: it speaks another version          the next one after a pause, which counts towards no limit; one ShowLine
    next: somebody asks for a newcomer          StartIncarnation

Live runs (`paceline.runtime.supervisor.incarnations`) and simulated ones (`paceline.sim.faults`) carry the actions out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from paceline.core.coordination.party import EVALUATOR, Party
from paceline.core.coordination.server_recovery import INCARNATIONS_MAX
from paceline.core.supervisor.restart_policy import (
    LATE_RESTARTS,
    LATER_SECONDS,
    PAUSE_SECONDS_MAX,
    SERVER_PAUSE_SECONDS_MAX,
    EvaluatorRestarts,
    Replacements,
    Restarts,
)


@dataclass(frozen=True, slots=True)
class StartIncarnation:
    """Starts a process of `who`. `judges`: of the evaluator, it may evaluate; otherwise it only saves the model."""

    who: Party
    incarnation: int
    judges: bool = True


@dataclass(frozen=True, slots=True)
class KillIncarnation:
    """Kills the process of a party that was lost, if it still runs."""

    who: Party


@dataclass(frozen=True, slots=True)
class ShowLine:
    """Shows the user a line."""

    line: str


ProcessAction = StartIncarnation | KillIncarnation | ShowLine


class ProcessSupervision:
    """Decides for one run. `restarts`: how often a lost worker is started again.

    up: whose process runs, as far as anybody has heard
    given_up: workers and the evaluator, of which no further process is started as things are
    """

    def __init__(self, restarts: int) -> None:
        self._says_why_not = restarts > 0
        self._restarts = Restarts(restarts)
        self._replacements = Replacements(INCARNATIONS_MAX)
        self._evaluator = EvaluatorRestarts()
        self._incarnations: dict[Party, int] = {}  # the last one of each
        self._refusals: dict[Party, str] = {}  # why the last process that came was refused
        self._refused: set[Party] = set()  # whose last process has ended for that
        self._told: set[Party] = set()  # about whose refusals the user knows
        self._newcomers_not = ""  # why no worker can join late
        self.up: set[Party] = set()
        self.given_up: set[Party] = set()

    def begin(self, parties: Iterable[Party], not_started: Collection[Party]) -> list[ProcessAction]:
        """Starts the first incarnation of everybody but `not_started`."""
        self._incarnations = dict.fromkeys(parties, 0)
        return [self._start(who) for who in self._incarnations if who not in not_started]

    def refuse_newcomers(self, why: str) -> None:
        """Starts no lost worker again from now on; `why` is what the user reads."""
        self._newcomers_not = why

    def next(self, who: Party) -> StartIncarnation:
        """Starts the next incarnation of `who`."""
        self._incarnations[who] += 1
        return self._start(who)

    def _start(self, who: Party) -> StartIncarnation:
        self.up.add(who)
        self._refused.discard(who)
        self.given_up.discard(who)
        judges = who != EVALUATOR or not self._evaluator.exhausted
        return StartIncarnation(who, self._incarnations[who], judges)

    # ---- what is heard of them ---------------------------------------------------------------------------
    def joined(self, who: Party, incarnation: int) -> None:
        """Notes that an incarnation has joined: it was not refused, and a server counts as there."""
        self._refusals.pop(who, None)
        self._told.discard(who)
        if who.kind == "server":
            self._replacements.joined(who, incarnation)

    def lost(self, who: Party, incarnation: int) -> list[ProcessAction]:
        """Kills a lost incarnation, whose process may still run, and starts a server's successor if its process has
        ended."""
        actions: list[ProcessAction] = []
        if incarnation == self._incarnations[who]:  # the next one may be up by now
            actions.append(KillIncarnation(who))
        if who.kind == "server" and self._replacements.given_up(who, incarnation):
            actions.append(self.next(who))
        return actions

    def hopeless(self, who: Party, *, trains: bool) -> bool:
        """Returns True if no further process may be started for `who`, whose process has ended, though the run needs
        one."""
        if who == EVALUATOR:
            return self._evaluator.exhausted and not trains
        return who not in self._refused and self._replacements.hopeless(who, self._incarnations[who])

    def has_ended(self, who: Party) -> None:
        """Notes that the process of `who` has ended, whatever follows."""
        self.up.discard(who)

    def refused(self, who: Party, why: str) -> None:
        """Notes that the process of `who` has ended because it speaks another version than the run. `ended` follows."""
        self._refusals[who] = why
        self._refused.add(who)

    def refusal_of(self, who: Party) -> str:
        """Returns why the last process of `who` that came was refused, or "" if it was not."""
        return self._refusals.get(who, "")

    def ended(self, now: float, who: Party, *, trains: bool, banned: Collection[Party]) -> list[ProcessAction]:
        """Plans the next incarnation of `who`, whose process has ended in a run that goes on: now, later or never."""
        if who.kind == "server":
            return self._server_ended(now, who)
        if who in banned:
            return []
        if who == EVALUATOR:
            self._evaluator.ended()
        return self._plan(now, who) if trains else []

    def _server_ended(self, now: float, who: Party) -> list[ProcessAction]:
        if who in self._refused:
            self._replacements.refused(now, who)
            return self._line_about(who)
        return [self.next(who)] if self._replacements.ended(who, self._incarnations[who]) else []

    def _plan(self, now: float, who: Party) -> list[ProcessAction]:
        """Plans the next process of a worker or the evaluator, while others train."""
        why_not = self._newcomers_not if who.kind == "worker" else ""
        if who in self._refused:
            why_not = why_not or self._restarts.refused(now, who)
            if not why_not:
                return self._line_about(who)
            why_not = f"{self._refusals[who]}; {why_not}"
        else:
            why_not = why_not or self._restarts.ended(now, who, later=LATE_RESTARTS if who == EVALUATOR else 0)
        if why_not:
            self.given_up.add(who)
        if who == EVALUATOR:
            if why_not:
                why_not += "; nothing is evaluated or checkpointed now, and one more saves the last model"
                return [ShowLine(why_not)]
            pause = self._restarts.pause(now, who)
            if pause >= LATER_SECONDS:
                line = f"evaluator is tried again in {pause:.0f} s; nothing is evaluated or checkpointed until then"
                return [ShowLine(line)]
        return [ShowLine(why_not)] if why_not and (self._says_why_not or who in self._refused) else []

    def _line_about(self, who: Party) -> list[ProcessAction]:
        """Returns the line that is shown at the first of several refusals, until one of its processes joins."""
        if who in self._told:
            return []
        self._told.add(who)
        most = SERVER_PAUSE_SECONDS_MAX if who.kind == "server" else PAUSE_SECONDS_MAX
        return [ShowLine(f"{self._refusals[who]}; it is tried again, after pauses of up to {most:g} s")]

    def known(self) -> Iterable[Party]:
        """Returns all parties of the run."""
        return self._incarnations

    def next_due(self) -> float | None:
        """Returns when `due` has something to do, or None if it has nothing."""
        times = [*self._restarts.times(), *self._replacements.times()]
        return min(times, default=None)

    def due(self, now: float, *, trains: bool, needs_evaluator: bool) -> list[ProcessAction]:
        """Starts those whose pause is over; the evaluator at once where nobody trains any more."""
        actions: list[ProcessAction] = [self.next(who) for who in self._replacements.due(now)]
        for who in self._restarts.due(now):
            if trains:
                if who == EVALUATOR:
                    self._evaluator.started()
                actions.append(self.next(who))
        if not trains and needs_evaluator and self._evaluator.takes_final_restart():
            actions.append(self.next(EVALUATOR))
        return actions
