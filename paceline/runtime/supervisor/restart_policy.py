"""How often a lost worker, server or evaluator is started again, and when."""

from __future__ import annotations

import math
from dataclasses import dataclass

from paceline.live.party import Party

SHORT_SECONDS = 5.0
"""An incarnation that is over so soon makes the pause before the next one longer."""
PAUSE_SECONDS_MAX = 30.0
LATER_SECONDS = 60.0
LATE_RESTARTS = 5
"""Of the evaluator while others train, once --restarts are used up: after 60 s, 120 s, ...; its cause may be over."""
FINAL_RESTARTS = 2
"""Of the evaluator, once nobody trains any more. The last one only saves: to judge may be what ended the others."""


@dataclass(slots=True)
class _Starts:
    began: float = -math.inf  # of the first one nobody asks
    short: int = 0  # of the latest ones, without a longer one between
    again: int = 0
    due: float | None = None


class Restarts:
    """Restarts each worker and the evaluator `most` times: at once, or after a pause if its incarnations are short."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._incarnations: dict[Party, _Starts] = {}

    def ended(self, now: float, who: Party, *, later: int = 0) -> str:
        """Its process has ended; why it is not started again, or nothing.

        `later`: how many restarts follow those, each after a longer pause; none where `most` is 0.
        """
        incarnations = self._incarnations.setdefault(who, _Starts())
        if incarnations.again >= self._most:
            if self._most and incarnations.again < self._most + later:
                incarnations.due = now + LATER_SECONDS * (incarnations.again - self._most + 1)
                return ""
            return f"{who} is not started again: --restarts {self._most}"
        incarnations.short = incarnations.short + 1 if now - incarnations.began < SHORT_SECONDS else 0
        incarnations.due = now + (
            min(PAUSE_SECONDS_MAX, 2.0 ** (incarnations.short - 1)) if incarnations.short else 0.0
        )
        return ""

    def pause(self, now: float, who: Party) -> float:
        """Seconds until it is started again; 0 where it is not, or at once."""
        due = self._incarnations[who].due
        return max(0.0, due - now) if due is not None else 0.0

    def due(self, now: float) -> list[Party]:
        """Who is to be started now."""
        found = []
        for who, incarnations in self._incarnations.items():
            if incarnations.due is not None and incarnations.due <= now:
                incarnations.again, incarnations.began, incarnations.due = incarnations.again + 1, now, None
                found.append(who)
        return found


class EvaluatorRestarts:
    """Nobody waits for the evaluator while others train; at the end one has to save the model.

    While training goes on `Restarts` says when it is started again; after that it is at once, LAST_LIVES times.
    """

    def __init__(self) -> None:
        self._is_away = False
        self._final_restarts = 0

    @property
    def exhausted(self) -> bool:
        """Has its last incarnation begun?"""
        return self._final_restarts >= FINAL_RESTARTS

    def ended(self) -> None:
        self._is_away = True

    def started(self) -> None:
        self._is_away = False

    def takes_final_restart(self) -> bool:
        """Nobody trains any more: is another one to be started now? It counts as started then."""
        if not self._is_away or self.exhausted:
            return False
        self._is_away, self._final_restarts = False, self._final_restarts + 1
        return True


class Replacements:
    """A lost server is started anew once it is given up and its process has ended; one that never joined, at once.

    Incarnations are numbered from 0. A server has at most `most` in a row that count the last one that joined and those
    after it that never did.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._joined: dict[Party, int] = {}  # the latest incarnation that has
        self._given_up: dict[Party, int] = {}
        self._ended: dict[Party, int] = {}  # whose process has, and which is not replaced yet

    def joined(self, who: Party, incarnation: int) -> None:
        self._joined[who] = incarnation

    def given_up(self, who: Party, incarnation: int) -> bool:
        """The run goes on without that incarnation. Is it time for the next one?"""
        self._given_up[who] = incarnation
        return self._ended.get(who) == incarnation and self._next(who)

    def ended(self, who: Party, incarnation: int) -> bool:
        """The process of that incarnation has ended. Is it time for the next one?"""
        self._ended[who] = incarnation
        return (self._given_up.get(who) == incarnation or self._never_joined(who, incarnation)) and self._next(who)

    def hopeless(self, who: Party, incarnation: int) -> bool:
        """Returns True if a server's last incarnation never joined; the run goes on without a worker."""
        return (
            who.kind == "server"
            and self._never_joined(who, incarnation)
            and incarnation - self._joined.get(who, 0) + 1 >= self._most
        )

    def _never_joined(self, who: Party, incarnation: int) -> bool:
        return incarnation > self._joined.get(who, 0)  # the run began with the first

    def _next(self, who: Party) -> bool:
        del self._ended[who]  # once only, whatever is still heard of it
        return True
