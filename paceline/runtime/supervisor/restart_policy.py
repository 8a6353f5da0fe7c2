"""How often a lost worker, server or evaluator is started again, and when."""

from __future__ import annotations

import math
from dataclasses import dataclass

from paceline.live.party import Party

SHORT_SECONDS = 5.0
"""A life that is over so soon makes the pause before the next one longer."""
PAUSE_SECONDS_MAX = 30.0
LATER_SECONDS = 60.0
LATER_LIVES = 5
"""Of the evaluator while others train, once --restarts are used up: after 60 s, 120 s, ...; its cause may be over."""
LAST_LIVES = 2
"""Of the evaluator, once nobody trains any more. The last one only saves: to judge may be what ended the others."""


@dataclass(slots=True)
class _Lives:
    began: float = -math.inf  # of the first one nobody asks
    short: int = 0  # of the latest ones, without a longer one between
    again: int = 0
    due: float | None = None


class Restarts:
    """Each worker and the evaluator is started again `most` times: at once, but for one whose lives are short."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lives: dict[Party, _Lives] = {}

    def ended(self, now: float, who: Party, *, later: int = 0) -> str:
        """Its process has ended; why it is not started again, or nothing.

        So many `later` lives it has beyond those, each after a longer pause, unless it has none at all.
        """
        lives = self._lives.setdefault(who, _Lives())
        if lives.again >= self._most:
            if self._most and lives.again < self._most + later:
                lives.due = now + LATER_SECONDS * (lives.again - self._most + 1)
                return ""
            return f"{who} is not started again: --restarts {self._most}"
        lives.short = lives.short + 1 if now - lives.began < SHORT_SECONDS else 0
        lives.due = now + (min(PAUSE_SECONDS_MAX, 2.0 ** (lives.short - 1)) if lives.short else 0.0)
        return ""

    def pause(self, now: float, who: Party) -> float:
        """Seconds until it is started again; 0 where it is not, or at once."""
        due = self._lives[who].due
        return max(0.0, due - now) if due is not None else 0.0

    def due(self, now: float) -> list[Party]:
        """Who is to be started now."""
        found = []
        for who, lives in self._lives.items():
            if lives.due is not None and lives.due <= now:
                lives.again, lives.began, lives.due = lives.again + 1, now, None
                found.append(who)
        return found


class EvaluatorRestarts:
    """Nobody waits for the evaluator while others train; at the end one has to save the model.

    While training goes on `Restarts` says when it is started again; after that it is at once, LAST_LIVES times.
    """

    def __init__(self) -> None:
        self._is_away = False
        self._last_lives = 0

    @property
    def exhausted(self) -> bool:
        """Has its last life begun?"""
        return self._last_lives >= LAST_LIVES

    def ended(self) -> None:
        self._is_away = True

    def started(self) -> None:
        self._is_away = False

    def takes_last_life(self) -> bool:
        """Nobody trains any more: is another one to be started now? It counts as started then."""
        if not self._is_away or self.exhausted:
            return False
        self._is_away, self._last_lives = False, self._last_lives + 1
        return True


class Replacements:
    """A lost server is started anew once it is given up and its process has ended; one that never joined, at once.

    Lives are told apart by their number from 0; of those that never join, a server has so many in a row that with the
    one before them they are `most`.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._joined: dict[Party, int] = {}  # the latest life that has
        self._given_up: dict[Party, int] = {}
        self._ended: dict[Party, int] = {}  # whose process has, and which is not replaced yet

    def joined(self, who: Party, life: int) -> None:
        self._joined[who] = life

    def given_up(self, who: Party, life: int) -> bool:
        """The run goes on without that life. Is it time for the next one?"""
        self._given_up[who] = life
        return self._ended.get(who) == life and self._next(who)

    def ended(self, who: Party, life: int) -> bool:
        """The process of that life has ended. Is it time for the next one?"""
        self._ended[who] = life
        return (self._given_up.get(who) == life or self._never_joined(who, life)) and self._next(who)

    def hopeless(self, who: Party, life: int) -> bool:
        """Has even the last of a server's lives never joined? Of workers nobody hears here: the run goes on without."""
        return (
            who.kind == "server" and self._never_joined(who, life) and life - self._joined.get(who, 0) + 1 >= self._most
        )

    def _never_joined(self, who: Party, life: int) -> bool:
        return life > self._joined.get(who, 0)  # the run began with the first

    def _next(self, who: Party) -> bool:
        del self._ended[who]  # once only, whatever is still heard of it
        return True
